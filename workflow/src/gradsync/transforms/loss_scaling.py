"""A loss scale guards float16 computation: updates take it out of the gradients and skip a step that is not finite.

The scale is a buffer of each rank (as torch's GradScaler). SGD of all gradients at once changes it itself
(`kernels/sgd_scaled.py`). Other updates wait for the norm of all gradients, which tells all of them on all ranks
whether to skip the step (`kernels/_unscaled.py`); the scale moves when they are done, before the next forward begins.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from gradsync import compressors
from gradsync.errors import InputError
from gradsync.kernels import ENCODE, KERNELS, SCALED, UNSCALED, _loss_scale
from gradsync.plan import Buffer, Local, Need, Plan, Ref, Role
from gradsync.transforms._edits import (
    Body,
    applies_gradients,
    computes,
    operations,
    the_update,
    with_bodies,
    with_buffer,
)
from gradsync.transforms._norm import OF_ALL, in_parts, with_buffers, with_norm

ENCODERS = {"powersgd_left", *(f"{ENCODE}{name}" for name in compressors.coding())}
TRANSFORM = "loss scaling"
BUFFER = "scaler"  # and the operation that moves it
SCALER = Ref(BUFFER, 0, _loss_scale.ELEMENTS)


def scale_loss(plan: Plan) -> Plan:
    """The plan whose updates take a loss scale out of the gradients.

    Raises InputError unless each rank that computes gradients applies all of them, or its pieces, by kernels that can
    do so, and for gradients that are kept from turn to turn.
    """
    if plan.passes == 0:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan that computes gradients")
    if plan.holding("residual") is not None:
        raise InputError(
            f"plan {plan.name!r}: {TRANSFORM} needs a plan without residuals: these keep gradients of earlier loss "
            "scales, and infinite ones for ever"
        )
    if coded := [op for role in plan.roles for op in operations(role.body) if getattr(op, "kernel", "") in ENCODERS]:
        raise InputError(
            f"plan {plan.name!r}: {TRANSFORM} makes gradients that are infinite now and then, and {coded[0].name!r} "
            f"encodes them by kernel {coded[0].kernel!r}, which takes none: compute in another type, or choose another "
            "compressor"
        )
    plan = with_buffer(plan, Buffer(BUFFER, _loss_scale.ELEMENTS, role="scaler"), TRANSFORM)
    normed: list[Local] = []

    def edited(role: Role, body: Body) -> Iterator[Any]:
        updates = [op for op in body if applies_gradients(plan, op)]
        if not in_parts(plan, updates):
            update = the_update(plan, role, body, TRANSFORM)
            if computes(body) != (update is not None):
                raise InputError(
                    f"plan {plan.name!r}: {TRANSFORM}: role {role.name!r} computes gradients or applies them, not "
                    "both: another rank's loss scale may be another"
                )
            if update is None or f"{update.kernel}{SCALED}" in KERNELS:
                yield from (op if update is None or op is not update else _scaled(update) for op in body)
                return
            updates = [update]
        for update in updates:
            if (kernel := f"{update.kernel}{UNSCALED}") not in KERNELS:
                problem = f"no kernel {kernel!r} for the update {update.name!r}"
                raise InputError(f"plan {plan.name!r}: {TRANSFORM}: {problem}")
            if update.requires is None:
                problem = f"{update.name!r} applies the gradients of its rank alone, and all ranks skip a step or none"
                raise InputError(f"plan {plan.name!r}: {TRANSFORM}: {problem}")
        normed.extend(updates)
        yield from _moved_after(updates, with_norm(plan, body, updates, _unscaled))

    new = with_bodies(plan, edited)
    return new if all(OF_ALL in op.reads for op in normed) else with_buffers(new, TRANSFORM)


def _scaled(update: Local) -> Local:
    return dataclasses.replace(update, kernel=f"{update.kernel}{SCALED}", writes=(*update.writes, SCALER))


def _unscaled(update: Local) -> Local:
    return dataclasses.replace(update, kernel=f"{update.kernel}{UNSCALED}", reads=(*update.reads, SCALER))


def _moved_after(updates: Sequence[Local], body: Iterator[Any]) -> Iterator[Any]:
    """The body whose loss scale moves after the last update; the first forward of the next turn waits for that."""
    last, waiting = updates[-1], True
    ends = tuple({op.lane: op.name for op in updates}.values())  # those of a lane are in order
    for op in body:
        if waiting and isinstance(op, Need):
            op, waiting = dataclasses.replace(op, after_previous=(BUFFER, *op.after_previous)), False
        yield op
        if op.name == last.name:
            yield Local(name=BUFFER, lane=last.lane, kernel="scaler", after=ends, reads=(OF_ALL,), writes=(SCALER,))

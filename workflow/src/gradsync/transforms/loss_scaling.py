"""A loss scale guards float16 computation: updates take it out of the gradients and skip a step that is not finite.

The scale is a buffer of each rank, which the update changes (`kernels/sgd_scaled.py`, as torch's GradScaler).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync import compressors
from gradsync.errors import InputError
from gradsync.kernels import ENCODE, KERNELS
from gradsync.kernels.sgd_scaled import SCALER_ELEMENTS
from gradsync.plan import Buffer, Local, Plan, Ref, Role
from gradsync.transforms._edits import Body, computes, operations, the_update, with_bodies, with_buffer

ENCODERS = {f"{ENCODE}{name}" for name in compressors.coding()}
TRANSFORM = "loss scaling"
BUFFER = "scaler"


def scale_loss(plan: Plan) -> Plan:
    """The plan whose update takes a loss scale out of the gradients.

    Raises InputError unless each rank that computes gradients applies them, at once and by a kernel that can do so, and
    for gradients that are kept from turn to turn.
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
    plan = with_buffer(plan, Buffer(BUFFER, SCALER_ELEMENTS, role="scaler"), TRANSFORM)

    def edited(role: Role, body: Body) -> Iterator[Any]:
        update = the_update(plan, role, body, TRANSFORM)
        if computes(body) != (update is not None):
            raise InputError(
                f"plan {plan.name!r}: {TRANSFORM}: role {role.name!r} computes gradients or applies them, not both: "
                "another rank's loss scale may be another"
            )
        for op in body:
            yield op if update is None or op is not update else _scaled(plan, update)

    return with_bodies(plan, edited)


def _scaled(plan: Plan, update: Local) -> Local:
    kernel = f"{update.kernel}_scaled"
    if kernel not in KERNELS:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM}: no kernel {kernel!r} for the update {update.name!r}")
    return dataclasses.replace(update, kernel=kernel, writes=(*update.writes, Ref(BUFFER, 0, SCALER_ELEMENTS)))

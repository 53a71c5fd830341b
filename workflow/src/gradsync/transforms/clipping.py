"""Clipping of the gradient to a norm (Pascanu et al., "On the difficulty of training recurrent neural networks", ICML
2013, Algorithm 1).

The update waits for the norm of the whole mean gradient, hence for every message; the norm takes the workload's
`norm_seconds`. Updates part by part all wait for a norm that ranks sum up (`_clipped_parts.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync.errors import InputError
from gradsync.kernels import KERNELS
from gradsync.plan import DTYPE_BYTES, Buffer, Local, Plan, Ref, Role
from gradsync.transforms._clipped_parts import NORM, SQUARES, in_parts
from gradsync.transforms._clipped_parts import clipped as clipped_parts
from gradsync.transforms._edits import Body, applies_gradients, at_once, the_update, with_bodies, with_buffer

TRANSFORM = "clipping"
BUFFER = NORM


def clip(plan: Plan, norm: float) -> Plan:
    """The plan whose update cuts the norm of the gradient to `norm`.

    Raises InputError for a norm that makes no sense, and unless all gradients are applied at once, by a kernel that can
    clip them.
    """
    if not 0 < norm < float("inf"):
        raise InputError(f"clip_norm {norm}: must be positive and finite; leave it out to clip nothing")
    gradients: list[str] = []  # buffers that updates read
    parts = 0

    def edited(role: Role, body: Body) -> Iterator[Any]:
        nonlocal parts
        updates = [op for op in body if applies_gradients(plan, op)]
        if not at_once(plan, updates) and in_parts(plan, updates):
            parts = len(updates)
            for update in updates:
                _refuse_kernel(plan, update)
                gradients.append(update.reads[0].buffer)
            yield from clipped_parts(plan, body, updates, norm)
            return
        update = the_update(plan, role, body, TRANSFORM)
        for op in body:
            if update is None or op is not update:
                yield op
            else:
                gradients.append(update.reads[0].buffer)
                yield from _clipped(plan, update, norm)

    clipped = with_bodies(plan, edited)
    if not gradients:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs an operation that applies gradients")
    dtype = plan.buffer[gradients[0]].dtype
    wide = dtype if DTYPE_BYTES[dtype] >= DTYPE_BYTES["float32"] else "float32"
    clipped = with_buffer(clipped, Buffer(SQUARES, parts, wide), TRANSFORM) if parts else clipped
    return with_buffer(clipped, Buffer(BUFFER, 1, wide), TRANSFORM)


def _refuse_kernel(plan: Plan, update: Local) -> None:
    if "clip" not in KERNELS[update.kernel].arguments:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM}: kernel {update.kernel!r} of {update.name!r} can't clip")


def _clipped(plan: Plan, update: Local, norm: float) -> Iterator[Local]:
    """The norm of all that the update applies, then the update."""
    _refuse_kernel(plan, update)
    gradient, length = update.reads[:1], (Ref(BUFFER, 0, 1),)
    yield Local(name="norm", after=update.after, kernel="norm", reads=gradient, writes=length, requires=update.requires)
    arguments = {**update.arguments, "clip": norm}
    yield dataclasses.replace(update, after=("norm",), reads=(*update.reads, *length), arguments=arguments)

"""Clipping of the gradient to a norm (Pascanu et al., "On the difficulty of training recurrent neural networks", ICML
2013, Algorithm 1).

The update waits for the norm of the whole mean gradient, hence for every message; the norm takes the workload's
`norm_seconds`. Updates part by part all wait for a norm that ranks sum up (`_norm.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync.errors import InputError
from gradsync.kernels import KERNELS
from gradsync.plan import Local, Plan, Role
from gradsync.transforms._edits import Body, applies_gradients, the_update, with_bodies
from gradsync.transforms._norm import OF_ALL, in_parts, with_buffers, with_norm

TRANSFORM = "clipping"


def clip(plan: Plan, norm: float) -> Plan:
    """The plan whose update cuts the norm of the gradient to `norm`.

    Raises InputError for a norm that makes no sense, and unless all gradients are applied, at once or part by part, by
    kernels that can clip them.
    """
    if not 0 < norm < float("inf"):
        raise InputError(f"clip_norm {norm}: must be positive and finite; leave it out to clip nothing")
    clipped: list[Local] = []

    def cut(update: Local) -> Local:
        return dataclasses.replace(update, arguments={**update.arguments, "clip": norm})

    def edited(role: Role, body: Body) -> Iterator[Any]:
        updates = [op for op in body if applies_gradients(plan, op)]
        if not in_parts(plan, updates):
            update = the_update(plan, role, body, TRANSFORM)
            updates = [] if update is None else [update]
        for update in updates:
            if "clip" not in KERNELS[update.kernel].arguments:
                problem = f"kernel {update.kernel!r} of {update.name!r} can't clip"
                raise InputError(f"plan {plan.name!r}: {TRANSFORM}: {problem}")
        clipped.extend(updates)
        yield from with_norm(plan, body, updates, cut) if updates else body

    new = with_bodies(plan, edited)
    if not clipped:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs an operation that applies gradients")
    has_norm = all(OF_ALL in op.reads and "clip" not in op.arguments for op in clipped)
    return new if has_norm else with_buffers(new, TRANSFORM)

"""A plan's messages alone: sums of gradients, which an optimizer that is not the plan's applies.

The update is left out, with parameters and all that it keeps, and one operation of the compute lane waits for what the
update waited for. The weight that the update gives to sums is given to gradients before they are sent, as in stock DDP.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from gradsync import optimizers
from gradsync.errors import InputError
from gradsync.plan import COMPUTE, Local, Plan, Ref
from gradsync.transforms._edits import applies_gradients, the_update, weighs_gradients

TRANSFORM = "an optimizer of one's own"
LEFT_OUT = ("parameter", "momentum")


class MessagesAlone(NamedTuple):
    """The plan, the buffer that holds the sums at the end of a turn, and the weight of gradients in them."""

    plan: Plan
    sums: str
    weight: float


def by_parts(plan: Plan) -> bool:
    """Whether a plan of one role applies gradients part by part, or beside computation."""
    updates = [op for op in plan.roles[0].flat if applies_gradients(plan, op)]
    return len(updates) != 1 or updates[0].lane != COMPUTE


def messages_alone(plan: Plan) -> MessagesAlone:
    """The messages of a plan of one role.

    Raises InputError for a plan that applies gradients part by part, or does more with them than its optimizer does.
    """
    (role,) = plan.roles
    update = the_update(plan, role, role.body, TRANSFORM)
    if update is None or update.requires not in ("sum", "sparse_sum"):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan that applies sums of gradients")
    more = {
        "torch's GradScaler": update.kernel not in optimizers.names(),
        "clip_grad_norm_ before the optimizer": "clip" in update.arguments,
    }
    for instead, does_more in more.items():
        if does_more:
            raise InputError(f"plan {plan.name!r}: {update.name!r} does more than its optimizer: use {instead}")
    dropped = [op for op in role.body if isinstance(op, Local) and weighs_gradients(plan, op)]
    names = {op.name for op in dropped}
    sums = update.reads[0].buffer
    first = (Ref(sums, 0, 1),)
    waits = tuple(dict.fromkeys(name for op in dropped for name in op.after if name not in names))
    through = Local(name=update.name, kernel="copy", after=waits, reads=first, writes=first, requires=update.requires)
    kept = {
        buffer.name
        for buffer in plan.buffers
        if buffer.role not in LEFT_OUT
        and (buffer.role != "scratch" or any(_touches(op, buffer.name) for op in role.body if op.name not in names))
    }

    def edited(op: Any) -> Any:
        if op is update:
            return through
        reads, writes = (tuple(ref for ref in refs if ref.buffer in kept) for refs in (op.reads, op.writes))
        return dataclasses.replace(op, reads=reads, writes=writes)

    body = tuple(edited(op) for op in role.body if op is update or op.name not in names)
    return MessagesAlone(
        dataclasses.replace(
            plan,
            buffers=tuple(buffer for buffer in plan.buffers if buffer.name in kept),
            roles=(dataclasses.replace(role, body=body),),
        ),
        sums,
        update.arguments.get("scale", 1.0),
    )


def _touches(op: Any, buffer: str) -> bool:
    return any(ref.buffer == buffer for ref in (*op.reads, *op.writes))

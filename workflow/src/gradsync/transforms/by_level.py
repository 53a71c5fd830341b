"""By level: each message is summed by collectives of the backend's own, inside nodes, between them, and inside again.

A reduce-scatter over the axis `local`, an all-reduce of each rank's slice over `node`, an all-gather over `local`. This
is the public-cloud paper's 2DTAR and Horovod's hierarchical all-reduce, made of what GPUs execute too; collective
`torus2d` spells the same out in transfers of rings. A message with fewer elements than a node has ranks travels whole.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync.collectives import ALL_GATHER, ALL_REDUCE, NATIVE, REDUCE_SCATTER
from gradsync.errors import InputError
from gradsync.plan import WORLD, Collective, Plan, Role
from gradsync.sparse import Way
from gradsync.transforms import narrow_wire
from gradsync.transforms._edits import Body, named, operations, over, waiting, with_bodies

TRANSFORM = "sums by level"


def by_level(plan: Plan, way: Way) -> Plan:
    """The plan whose messages of gradients are summed over one axis of `way` after the other.

    Raises InputError for a plan whose gradients are not summed by all-reduces of the backend's own over all of its
    ranks, that has axes already, or that deals pieces to all ranks.
    """
    if plan.axes or plan.ranks != way.ranks or way.inside is None:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan without axes, of {way.ranks} rank(s)")
    if any(WORLD in ref.mine for role in plan.roles for op in role.flat for ref in (*op.reads, *op.writes)):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} goes before what deals pieces to all ranks")
    travels = narrow_wire.BUFFER if narrow_wire.BUFFER in plan.buffer else plan.holding("gradient")
    messages = {role.name: [*_messages(plan, role, travels)] for role in plan.roles}
    if not any(messages.values()):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs sums of gradients; it has no such message")

    def edited(role: Role, body: Body) -> Iterator[Any]:
        cut = [op.name for op in messages[role.name] if op.writes[0].stop - op.writes[0].start >= way.slices]
        last = {name: named("gather", name) for name in cut}
        for op in body:
            parts = _cut(op, way) if op.name in cut else (op,)
            yield from (waiting(part, last) for part in parts)

    return dataclasses.replace(with_bodies(plan, edited), axes=way.axes)


def _messages(plan: Plan, role: Role, buffer: str | None) -> Iterator[Collective]:
    """The messages of gradients; raises InputError for one that can't be summed by level."""
    for op in operations(role.body):
        if op.verb in ("ready", "local", "repeat") or not any(ref.buffer == buffer for ref in (*op.reads, *op.writes)):
            continue
        summed = isinstance(op, Collective) and op.kind == ALL_REDUCE and op.reads == op.writes and len(op.writes) == 1
        if not summed or op.algorithm != NATIVE or op.over != WORLD or op.ranks or op.writes[0].mine:
            raise InputError(
                f"plan {plan.name!r}: {TRANSFORM}: {op.name!r} is no all-reduce of the backend's own of one range of "
                "gradients over all ranks: choose another update, or the collective native"
            )
        yield op


def _cut(message: Collective, way: Way) -> Iterator[Collective]:
    """The three collectives that follow one another on the lane of the message."""
    assert way.inside is not None
    inside, between = way.inside.name, way.between.name
    (whole,) = message.writes

    first = over(inside, message, "scatter", REDUCE_SCATTER, whole)
    yield dataclasses.replace(first, after=message.after, after_previous=message.after_previous)
    yield over(between, message, "sum", ALL_REDUCE, whole._replace(mine=(inside,)))
    yield over(inside, message, "gather", ALL_GATHER, whole)

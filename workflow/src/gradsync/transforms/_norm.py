"""The norm of all gradients, which updates wait for: to clip, or to skip a step that is not finite.

If one operation applies all gradients, the norm is taken right before it. If they are applied part by part, the norm is
made of sums of squares, one of each part. A rank squares its own piece of each sum of gradients as soon as it has it.
One small all-reduce adds up what all ranks have, after the last message and before anything that updates wait for;
where every rank has whole sums there is none. All updates wait for the norm, and so does what waits for updates, an
all-gather of parameters for instance.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gradsync.collectives import ALL_GATHER
from gradsync.errors import InputError
from gradsync.plan import DTYPE_BYTES, Buffer, Collective, Local, Plan, Ref
from gradsync.transforms._edits import Body, at_once, operations, with_buffer

SQUARES, NORM = "squares", "norm"  # buffers, and the operations that sum the first and leave the second
OF_ALL = Ref(NORM, 0, 1)

Edit = Callable[[Local], Local]


def in_parts(plan: Plan, updates: Sequence[Any]) -> bool:
    """Whether these apply all gradients, each a part of them: whole sums, or a piece of its own on every rank."""
    if at_once(plan, updates) or not plan.symmetric or not updates:
        return False
    if not all(isinstance(op, Local) and op.requires for op in updates):
        return False
    read = sorted(op.reads[0] for op in updates)
    ends = [0, *(ref.stop for ref in read)]
    pieces = {plan.mesh.pieces(ref) for ref in read}
    return (
        all(plan.buffer[ref.buffer].role == "gradient" for ref in read)
        and [ref.start for ref in read] == ends[:-1]
        and ends[-1] == plan.elements
        and pieces in ({1}, {plan.ranks})
    )


def with_norm(plan: Plan, body: Body, updates: Sequence[Local], edit: Edit) -> Iterator[Any]:
    """The body with the norm before its updates, which read it next after their gradients; then `edit` of each.

    If they read it already, for another transform, that is the norm. Raises InputError for parts without a norm.
    """
    names = {op.name for op in updates}
    if all(OF_ALL in op.reads for op in updates):
        parts: Iterable[Any] = body
    elif at_once(plan, updates):
        parts = _at_once(body, updates[0])
    else:
        parts = _of_parts(plan, body, updates)
    yield from (edit(op) if op.name in names else op for op in parts)


def with_buffers(plan: Plan, transform: str) -> Plan:
    """The plan with the buffers of the norm that its updates read, which has none yet.

    Raises InputError, which names the transform, if the plan has one of their names.
    """
    ops = [op for role in plan.roles for op in operations(role.body) if isinstance(op, Local)]
    dtypes = [plan.buffer[op.reads[0].buffer].dtype for op in ops if OF_ALL in op.reads[1:]]
    wide = dtypes[0] if DTYPE_BYTES[dtypes[0]] >= DTYPE_BYTES["float32"] else "float32"
    if parts := [ref.stop for op in ops for ref in op.writes if ref.buffer == SQUARES]:
        plan = with_buffer(plan, Buffer(SQUARES, max(parts), wide), transform)
    return with_buffer(plan, Buffer(NORM, 1, wide), transform)


def _normed(update: Local) -> Local:
    gradient, *others = update.reads
    return dataclasses.replace(update, reads=(gradient, OF_ALL, *others))


def _at_once(body: Body, update: Local) -> Iterator[Any]:
    """The norm of all that the update applies, then the update."""
    for op in body:
        if op is not update:
            yield op
            continue
        gradient = update.reads[:1]
        yield Local(
            name=NORM, after=update.after, kernel="norm", reads=gradient, writes=(OF_ALL,), requires=update.requires
        )
        yield dataclasses.replace(_normed(update), after=(NORM,))


def _of_parts(plan: Plan, body: Body, updates: Sequence[Local]) -> Iterator[Any]:
    """The squares of all parts, their sum, the norm; updates, and what waits for them, come after it."""
    later = _waiting(body, updates)
    earlier = [op for op in body if op.name not in later]
    squares = [_squares(plan, earlier, update, number) for number, update in enumerate(updates)]
    # gathers of gradients, which write what squares are made of
    squared = {
        update.reads[0]: op.name for op, update in zip(squares, updates, strict=True) if op.reads != update.reads[:1]
    }
    for op in squares:
        place = max((i for i, each in enumerate(earlier) if each.name in op.after), default=-1)
        earlier.insert(place + 1, op)
    gathered = [i for i, op in enumerate(earlier) if _gathers(op) and op.writes[0] in squared]
    before = earlier[: gathered[0]] if gathered else earlier
    yield from before
    yield from _sum(before, squares, updates[0].lane)
    for op in earlier[len(before) :]:
        waits = (squared[op.writes[0]],) if _gathers(op) and op.writes[0] in squared else ()
        yield dataclasses.replace(op, after=(*op.after, *waits)) if waits else op
    for op in body:
        if op in updates:
            yield dataclasses.replace(_normed(op), after=(*op.after, NORM))
        elif op.name in later:
            yield op


def _waiting(body: Body, updates: Iterable[Local]) -> set[str]:
    """The updates, and what waits for one of them in its turn."""
    later = {op.name for op in updates}
    for op in body:
        if not later.isdisjoint(getattr(op, "after", ())):
            later.add(op.name)
    return later


def _squares(plan: Plan, body: Sequence[Any], update: Local, number: int) -> Local:
    """The squares of what an update applies; of sums that are gathered for it, of this rank's piece before that."""
    gradient, after = update.reads[0], update.after
    for op in body:
        of_all = _gathers(op) and op.after and plan.mesh.size(op.over) == plan.ranks
        if of_all and op.name in update.after and op.writes == (update.reads[0],):
            gradient, after = gradient._replace(mine=(*gradient.mine, op.over)), op.after
    return Local(
        name=f"{SQUARES}:{update.name}",
        lane=update.lane,
        kernel="squares",
        after=after,
        reads=(gradient,),
        writes=(Ref(SQUARES, number, number + 1),),
        requires="shard" if gradient.mine else update.requires,
    )


def _gathers(op: Any) -> bool:
    return isinstance(op, Collective) and op.kind == ALL_GATHER


def _sum(before: Sequence[Any], squares: Sequence[Local], lane: str) -> Iterator[Any]:
    """The sum of all squares over all ranks, if each has its own, and its root."""
    whole, after = (Ref(SQUARES, 0, len(squares)),), tuple(op.name for op in squares)
    messages = [op for op in before if isinstance(op, Collective)]
    of_pieces = {bool(op.reads[0].mine) for op in squares}
    if of_pieces != {False}:
        if len(of_pieces) > 1 or not messages:
            raise InputError("a norm part by part needs whole sums of all gradients, or messages of pieces of all")
        yield Collective(name=SQUARES, lane=messages[-1].lane, after=after, reads=whole, writes=whole)
        after = (SQUARES,)
    yield Local(name=NORM, lane=lane, kernel="root_of_sum", after=after, reads=whole, writes=(OF_ALL,))

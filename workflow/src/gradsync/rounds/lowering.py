"""Lowering: a collective that is described by rounds, as the transfers and local operations of one rank.

A collective stays one operation of a plan until it is lowered, lazily: spelled out for all ranks, a model's messages
would be millions of operations. The executor runs what `lower` gives; `lowered` spells out a whole plan of few ranks,
to be checked, simulated message by message, or evaluated like any other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gradsync import collectives
from gradsync.collectives import ALL_REDUCE, ALL_TO_ALL, NATIVE, REDUCE, REDUCE_SCATTER, SUMS, Shape
from gradsync.errors import InputError
from gradsync.plan import WORLD, Buffer, Collective, Group, Local, Plan, Recv, Ref, Repeat, Role, Send, piece


class Part(NamedTuple):
    """What a rank sends to, or receives from, a `peer` in a round: pieces first .. first + pieces - 1, on a rail."""

    peer: int
    first: int
    pieces: int
    rail: int


class Step(NamedTuple):
    """A round as one rank sees it."""

    sends: tuple[Part, ...]
    receives: tuple[Part, ...]
    adds: bool


@lru_cache(maxsize=256)
def steps(algorithm: str, shape: Shape, root: int, kind: str, rank: int) -> tuple[Step, ...]:
    """The rounds of a collective as `rank` sees them; raises InputError if the collective can't serve the shape."""

    def parts(peer: np.ndarray, first: np.ndarray, at: np.ndarray, step: collectives.Round) -> tuple[Part, ...]:
        return tuple(
            Part(*map(int, row)) for row in zip(peer[at], first[at], step.pieces[at], step.rail[at], strict=True)
        )

    return tuple(
        Step(
            parts(step.destination, step.first, np.flatnonzero(step.source == rank), step),
            parts(step.source, step.place, np.flatnonzero(step.destination == rank), step),
            step.adds,
        )
        for step in collectives.rounds(algorithm, shape, root, kind)
    )


@lru_cache(maxsize=256)
def rails(algorithm: str, shape: Shape, root: int, kind: str = ALL_REDUCE) -> int:
    """How many rails a collective sends on."""
    return 1 + max((int(step.rail.max()) for step in collectives.rounds(algorithm, shape, root, kind)), default=0)


def shape_of(op: Collective, ranks: int) -> Shape:
    """The levels that `op` works on, of a group of so many ranks."""
    return op.shape or (ranks,)


def refuse(op: Collective, ranks: int) -> None:
    """Raises InputError for an algorithm that does not exist, or that can't carry `op` in groups of so many ranks."""
    if op.shape and (min(op.shape) < 1 or prod(op.shape) != ranks):
        levels = " x ".join(map(str, op.shape))
        raise InputError(f"{op.name!r} is for {ranks} ranks, not for levels of {levels}")
    if op.algorithm == NATIVE:
        return
    _refuse_other(op)
    collectives.refuse(op.algorithm, shape_of(op, ranks), op.kind)


def lowerable(op: Collective) -> bool:
    """Whether rounds can carry a collective: of one range, in place, over an axis."""
    return not op.ranks and len(op.writes) == 1 and op.reads == op.writes


def _refuse_other(op: Collective) -> None:
    if not lowerable(op):
        raise InputError(
            f"collective {op.name!r}: {op.algorithm!r} is made of rounds, and only one of one range, in place, over an "
            "axis can be"
        )


def scratch(op: Collective, ranks: int, dtype: str) -> Buffer:
    """The buffer that `lower` receives into before it adds, or replaces what is being sent.

    It holds the longest part that is added, and all that a rank gets in a round in place of what it sends.
    """
    (ref,), shape = op.writes, shape_of(op, ranks)
    # of all ranks alike, as the buffers of a plan are
    exchanges = op.kind == ALL_TO_ALL
    longest = max(
        (
            np.bincount(step.destination, step.pieces).max() if exchanges else step.pieces.max()
            for step in collectives.rounds(op.algorithm, shape, op.root, op.kind)
            if step.adds or exchanges
        ),
        default=0,
    )
    pieces = collectives.get(op.algorithm).pieces(shape)
    elements = int(longest) * -(-(ref.stop - ref.start) // pieces)
    return Buffer(f"scratch:{op.name}", max(1, elements), dtype)  # a single rank receives nothing


class Range(NamedTuple):
    """What a rank sends to, or receives from, a `peer` in a round: elements low .. high - 1, on a rail."""

    peer: int
    low: int
    high: int
    rail: int


class Exchange(NamedTuple):
    """A round of one message as one rank sees it; what is empty is left out."""

    sends: tuple[Range, ...]
    receives: tuple[Range, ...]
    adds: bool


def exchanges(op: Collective, rank: int, group: Group, bounds: tuple[int, int] | None = None) -> Iterator[Exchange]:
    """The rounds of a collective as `rank` of a group sees them, in elements of the buffer that `op` writes.

    `bounds`: the elements [start, stop) that the group exchanges, None: the whole range.
    Raises InputError if `op` is none of those that `refuse` lets pass.
    """
    _refuse_other(op)
    shape = shape_of(op, len(group))
    start, stop = bounds or op.writes[0][1:3]
    pieces = collectives.get(op.algorithm).pieces(shape)

    def ranges(parts: tuple[Part, ...]) -> tuple[Range, ...]:
        elements = []
        for part in parts:
            low, _ = piece(start, stop, part.first, pieces)
            _, high = piece(start, stop, part.first + part.pieces - 1, pieces)
            if high > low:
                elements.append(Range(group[part.peer], low, high, part.rail))
        return tuple(elements)

    for step in steps(op.algorithm, shape, op.root, op.kind, group.index(rank)):
        yield Exchange(ranges(step.sends), ranges(step.receives), step.adds)


def lower(op: Collective, rank: int, group: Group, tag: int, bounds: tuple[int, int] | None = None) -> list[Any]:
    """The sends, receives and local operations of `rank` in a collective, in order; the last has the name of `op`.

    `bounds` as of `exchanges`.

    Raises InputError if `op` is none of those that `refuse` lets pass.
    """
    buffer = op.writes[0].buffer
    ops: list[Any] = []
    sends: list[Send] = []  # of this round
    earlier: tuple[str, ...] = ()  # sends of the round before, until something has waited for them

    def waits(*more: str) -> dict[str, Any]:
        """The first operation of all waits for what `op` waits for, the first of a round for the round before."""
        nonlocal earlier
        after, earlier = (*more, *earlier), ()
        return {"after": after} if ops else {"after": op.after + after, "after_previous": op.after_previous}

    for number, step in enumerate(exchanges(op, rank, group, bounds)):
        earlier += tuple(send.name for send in sends)
        sends = []
        for to, low, high, rail in step.sends:
            name, ref = f"{op.name}.send{_numbered(number, to, low, step.sends)}", Ref(buffer, low, high)
            way: dict[str, Any] = {"channel": op.lane, "tag": tag, "rail": rail}
            sends.append(Send(name=name, lane=op.lane, reads=(ref,), to=to, **way, **waits()))
            ops.append(sends[-1])
        moves: list[Local] = []  # once all of a round have come: ranks would else wait for one another in a ring
        held = 0  # elements of the scratch
        for source, low, high, rail in step.receives:
            ref, place = Ref(buffer, low, high), _numbered(number, source, low, step.receives)
            busy = tuple(send.name for send in sends if send.reads[0].start < high and low < send.reads[0].stop)
            staged = step.adds or op.kind == ALL_TO_ALL  # whose pieces change places with what is sent
            into = Ref(f"scratch:{op.name}", held, held + high - low) if staged else ref
            ops.append(
                Recv(
                    name=f"{op.name}.recv{place}",
                    lane=op.lane,
                    writes=(into,),
                    source=source,
                    channel=op.lane,
                    tag=tag,
                    rail=rail,
                    **waits(*(() if staged else busy)),
                )
            )
            if staged:
                kernel = "add" if step.adds else "copy"
                name = f"{op.name}.{kernel}{place}"
                move = Local(name=name, lane=op.lane, after=busy, kernel=kernel, reads=(into,), writes=(ref,))
                if step.adds:
                    ops.append(move)
                else:
                    moves.append(move)
                    held += high - low
        ops += moves
    # of all ranks: an axis sums some of them; and of a reduce the others have what nobody may read
    sums = op.over == WORLD and op.kind in SUMS and (op.kind != REDUCE or group.index(rank) == op.root)
    ops.append(
        Local(
            name=op.name,
            lane=op.lane,
            after=(*op.after, *earlier, *(send.name for send in sends)),
            after_previous=op.after_previous,
            kernel="join",
            writes=(_left(op),),
            postcondition="sum" if sums else None,
        )
    )
    return ops


def _numbered(number: int, peer: int, low: int, parts: tuple[Range, ...]) -> str:
    """The end of a transfer's name: round and peer, and the first element if the peer has several in the round."""
    alone = sum(part.peer == peer for part in parts) == 1
    return f"{number}.{peer}" if alone else f"{number}.{peer}.{low}"


def _left(op: Collective) -> Ref:
    """What a rank has of the result."""
    (ref,) = op.writes
    return ref._replace(mine=(*ref.mine, op.over)) if op.kind == REDUCE_SCATTER else ref


def lowered(plan: Plan) -> Plan:
    """The plan with every collective that has rounds spelled out, with a role per rank; for few ranks."""
    whole = [op for role in plan.roles for op in role.flat]
    unused = 1 + max((getattr(op, "tag", 0) for op in whole), default=0)
    described = {op.name: op for op in whole if isinstance(op, Collective) and op.algorithm != NATIVE}
    tags = {name: tag for tag, name in enumerate(sorted(described), start=unused)}
    extra = [scratch(op, plan.group_size(op), plan.buffer[op.writes[0].buffer].dtype) for op in described.values()]
    roles = []
    for rank in range(plan.ranks):
        role, body = plan.role_of[rank], []
        for op in role.flat:
            if op.name in described:
                bounds = plan.mesh.bounds(op.writes[0], rank)
                body += lower(op, rank, plan.group(op, rank), tags[op.name], bounds)
            else:
                body.append(op)
        if role.until_stopped:
            body = [Repeat(name=role.body[0].name, body=tuple(body))]
        roles.append(Role(f"{role.name} {rank}", (rank,), tuple(body)))
    return dataclasses.replace(plan, buffers=(*plan.buffers, *extra), roles=tuple(roles))

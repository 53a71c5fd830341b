"""Messages between ranks: ends that agree, streams in one order, groups that mean the same, servers that end.

On real ranks a message finds its receive by connection and tag alone, and a collective its partners by order alone.
What goes together must therefore be the same in bytes, type and channel on both ends, and come in an order that no
timing can change.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

from gradsync.check.grid import PlanError, fail
from gradsync.collectives import ALL_GATHER, REDUCE_SCATTER
from gradsync.plan import Collective, Group, Plan, Recv, RecvAny, Reply, Role, Send


class Stream(NamedTuple):
    """The messages that come to a rank over a channel and rail with a tag."""

    to: int
    channel: str
    rail: int
    tag: int


class End(NamedTuple):
    """One end of a stream: an operation of a rank, and the rank at the other end."""

    rank: int
    peer: int
    step: int
    op: Any


HALVES = (REDUCE_SCATTER, ALL_GATHER)
Streams = dict[Stream, tuple[list[End], list[End]]]  # what is sent, what is received


def refuse_channels(plan: Plan) -> None:
    """Raises PlanError if two ends don't fit, or only timing decides which do."""
    streams = _streams(plan)
    for stream, (sends, receives) in streams.items():
        _one_lane(plan, stream, sends, receives)
        _anybody(plan, stream, sends, receives)
        _alike(plan, stream, sends, receives)
    _collectives(plan)
    for role in plan.roles:
        if role.until_stopped:
            _gated(plan, role)
            _served(plan, role, streams)


def served(plan: Plan, role: Role) -> int:
    """How many passes of the body of a role that serves others make a turn of theirs."""
    return _passes(role, _streams(plan)) or 0


def _streams(plan: Plan) -> Streams:
    streams: Streams = defaultdict(lambda: ([], []))
    for role in plan.roles:
        sources = {op.name: op.sources for op in role.flat if isinstance(op, RecvAny)}
        for step, op in enumerate(role.flat):
            for rank in role.ranks:
                match op:
                    case Send():
                        streams[Stream(op.to, op.channel, op.rail, op.tag)][0].append(End(rank, op.to, step, op))
                    case Reply():
                        for to in sources[op.to]:
                            streams[Stream(to, op.channel, 0, op.tag)][0].append(End(rank, to, step, op))
                    case Recv():
                        end = End(rank, op.source, step, op)
                        streams[Stream(rank, op.channel, op.rail, op.tag)][1].append(end)
                    case RecvAny():
                        end = End(rank, -1, step, op)
                        streams[Stream(rank, op.channel, 0, op.tag)][1].append(end)
    return streams


def _refuse(plan: Plan, problem: str, *ends: End) -> None:
    raise PlanError(plan, problem, {(end.rank, end.step): "!" for end in ends})


def _described(stream: Stream) -> str:
    return f"channel {stream.channel!r}, rail {stream.rail}, tag {stream.tag}"


def _one_lane(plan: Plan, stream: Stream, sends: list[End], receives: list[End]) -> None:
    """What one rank sends to another, or receives from it, under one tag is in the order of one lane."""
    for what, ends in (("sends", sends), ("receives", receives)):
        first: dict[tuple[int, int], End] = {}
        for end in ends:
            other = first.setdefault((end.rank, end.peer), end)
            if other.op.lane != end.op.lane:
                problem = (
                    f"rank {end.rank} {what} {other.op.name!r} and {end.op.name!r} on {_described(stream)} from two "
                    "lanes: only timing decides which comes first; give them tags of their own"
                )
                _refuse(plan, problem, other, end)


def _anybody(plan: Plan, stream: Stream, sends: list[End], receives: list[End]) -> None:
    """A receive-from-any takes whatever comes under its tag: only what is meant for it may come."""
    anybody = [end for end in receives if isinstance(end.op, RecvAny)]
    if not anybody:
        return
    sources = set(anybody[0].op.sources)
    for end in receives:
        if not isinstance(end.op, RecvAny) or set(end.op.sources) != sources:
            problem = (
                f"{anybody[0].op.name!r} receives from anybody on {_described(stream)}, as {end.op.name!r} receives: "
                "only timing decides which message is whose"
            )
            _refuse(plan, problem, anybody[0], end)
        if end.op.lane != anybody[0].op.lane:
            problem = (
                f"{anybody[0].op.name!r} and {end.op.name!r} receive from anybody on {_described(stream)} on two lanes"
            )
            _refuse(plan, problem, anybody[0], end)
    for end in sends:
        if end.rank not in sources:
            problem = (
                f"{end.op.name!r} of rank {end.rank} comes to {anybody[0].op.name!r} of rank {stream.to} "
                f"({_described(stream)}), which receives from ranks {', '.join(map(str, sorted(sources)))} only"
            )
            _refuse(plan, problem, end, anybody[0])
    if len(sources) > 1:
        _replied_alike(plan, stream, anybody)


def _replied_alike(plan: Plan, stream: Stream, anybody: list[End]) -> None:
    """Of several receives from anybody, each is replied to in the same way before the next one begins.

    Which of them takes a message is a matter of timing: replies that differ would leave one rank without, and a reply
    that waits for the next message would wait for ever for a rank that has no further one to send.
    """
    body = plan.role_of[stream.to].flat
    replies = [[op for op in body if isinstance(op, Reply) and op.to == end.op.name] for end in anybody]
    lines = [sorted((op.channel, op.tag) for op in each) for each in replies]
    for at, (end, following) in enumerate(pairwise(anybody)):
        these, those = lines[at : at + 2]
        if these != those or any(body.index(op) > following.step for op in replies[at]):
            problem = (
                f"{end.op.name!r} and {following.op.name!r} of rank {stream.to} receive from anybody on "
                f"{_described(stream)}, and only timing decides which takes whose message: reply to the first before "
                "the second, and to both in the same way"
            )
            _refuse(plan, problem, end, following)


def _signature(plan: Plan, refs: Any) -> list[tuple[int, str]]:
    return [(ref.stop - ref.start, plan.buffer[ref.buffer].dtype) for ref in refs]


def _alike(plan: Plan, stream: Stream, sends: list[End], receives: list[End]) -> None:
    """Both ends have as many ranges, of equal lengths and types; of several under a tag, the n-th with the n-th."""
    for peer in {end.rank for end in sends}:
        ours = [end for end in sends if end.rank == peer]
        theirs = [end for end in receives if end.peer in (peer, -1)]
        shapes = [[_signature(plan, e.op.reads or e.op.writes) for e in ends] for ends in (ours, theirs)]
        if len(ours) == len(theirs) and not any(isinstance(end.op, RecvAny | Reply) for end in (*ours, *theirs)):
            pairs = list(zip(ours, theirs, *shapes, strict=True))
        else:  # they pair off in another way: all alike
            pairs = [
                (one, other, sent, received)
                for one, sent in zip(ours, shapes[0], strict=True)
                for other, received in zip(theirs, shapes[1], strict=True)
            ]
        for one, other, sent, received in pairs:
            if sent != received:
                problem = (
                    f"{one.op.name!r} of rank {one.rank} sends {_shown(sent)}, and {other.op.name!r} of rank "
                    f"{other.rank} receives {_shown(received)} ({_described(stream)}): both ends must be of equal "
                    "lengths and types"
                )
                _refuse(plan, problem, one, other)


def _shown(signature: list[tuple[int, str]]) -> str:
    return " and ".join(f"{length} {dtype}" for length, dtype in signature)


def _collectives(plan: Plan) -> None:
    """All that take part in a collective have it on one lane, of one kind and algorithm, over ranges alike.

    They describe the group in one way, and all have a reduce-scatter or all-gather in place or none has: that decides
    whether rounds of transfers carry it.
    """
    first: dict[tuple[str, Group], tuple[Role, int]] = {}
    for role in plan.roles:
        groups: dict[tuple[str, Group], set[Group]] = {}
        for step, op in enumerate(role.flat):
            if not isinstance(op, Collective):
                continue
            if (op.over, op.ranks) not in groups:
                groups[op.over, op.ranks] = {plan.group(op, rank) for rank in role.ranks}
            for group in groups[op.over, op.ranks]:
                other, at = first.setdefault((op.name, group), (role, step))
                if (other, at) != (role, step):
                    _refuse_other_collective(plan, (other, at), (role, step))


def _refuse_other_collective(plan: Plan, *ends: tuple[Role, int]) -> None:
    (one, at), (two, step) = ends
    descriptions = [
        {
            "lane": op.lane,
            "kind": op.kind,
            "algorithm": op.algorithm,
            "levels": op.shape,
            "axis": op.over,
            "ranks": op.ranks,
            "root": op.root,
            "ranges": _signature(plan, op.reads),
            "pieces": [ref.mine for ref in (*op.reads, *op.writes)],
            "place to write to": op.kind in HALVES and op.reads == op.writes,
        }
        for op in (one.flat[at], two.flat[step])
    ]
    if descriptions[0] != descriptions[1]:
        differ = ", ".join(name for name, value in descriptions[0].items() if value != descriptions[1][name])
        problem = f"collective {one.flat[at].name!r} has other {differ} in role {two.name!r} than in role {one.name!r}"
        raise PlanError(plan, problem, {(one.ranks[0], at): "!", (two.ranks[0], step): "!"})


def _gated(plan: Plan, role: Role) -> None:
    """Nothing in a role that serves others runs ahead of what it receives: every lane waits in every pass."""
    lanes: dict[str, list[Any]] = defaultdict(list)
    for op in role.flat:
        lanes[op.lane].append(op)
        if isinstance(op, Collective):
            fail(plan, f"{op.name!r}: a role that serves until others stop takes part in no collective", role, (0,))
    lane_of = {op.name: op.lane for op in role.flat}
    gated = {lane for lane, ops in lanes.items() if any(isinstance(op, Recv | RecvAny) for op in ops)}
    while more := {
        lane
        for lane, ops in lanes.items()
        if lane not in gated and any(lane_of.get(name) in gated for op in ops for name in op.after)
    }:
        gated |= more
    for lane, ops in lanes.items():
        if lane not in gated:
            problem = (
                f"role {role.name!r} serves until others stop, and its lane {lane!r} neither receives anything nor "
                "waits for what does: it would never end"
            )
            fail(plan, problem, role, (role.flat.index(ops[0]),))


def _served(plan: Plan, role: Role, streams: Streams) -> None:
    """Whole passes of a served role make a turn of the others: every stream brings as much as they take."""
    for stream, (sends, receives) in streams.items():
        for end in sends if stream.to in role.ranks and receives else ():
            if isinstance(end.op, Reply) or plan.role_of[end.rank].until_stopped:
                problem = (
                    f"{end.op.name!r} comes to role {role.name!r}, which serves until others stop, from another such"
                )
                _refuse(plan, f"{problem} role: nobody could tell when it is over", end)
    if _passes(role, streams) is None:
        counts = ", ".join(
            f"{sent} for {len([e for e in ends if e.rank == rank])} of {ends[0].op.name!r}"
            for rank, ends, sent in _incoming(role, streams)
        )
        problem = (
            f"role {role.name!r} serves until others stop: a turn of theirs must bring it what a whole number of "
            f"passes receives, and brings {counts}"
        )
        step = next(step for step, op in enumerate(role.flat) if isinstance(op, Recv | RecvAny))
        fail(plan, problem, role, (step,))


def _incoming(role: Role, streams: Streams) -> list[tuple[int, list[End], int]]:
    """(rank, receives of a pass, messages of a turn) of each stream, and of each source if receives name one."""
    incoming = []
    for stream, (sends, receives) in streams.items():
        if stream.to not in role.ranks or not receives:
            continue
        if isinstance(receives[0].op, RecvAny):
            incoming.append((stream.to, receives, len(sends)))
            continue
        for source in dict.fromkeys(end.peer for end in receives):
            ends = [end for end in receives if end.peer == source]
            incoming.append((stream.to, ends, sum(end.rank == source for end in sends)))
    return incoming


def _passes(role: Role, streams: Streams) -> int | None:
    """Passes of the body that a turn of the others takes; None if that is no whole number, or differs."""
    ratios = {divmod(sent, len(receives)) for _, receives, sent in _incoming(role, streams)}
    if len(ratios) != 1:
        return None
    ((passes, rest),) = ratios
    return passes if passes and not rest else None

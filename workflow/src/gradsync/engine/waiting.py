"""How much of a message's span was waiting for other ranks: what a straggler costs is not communication.

A rank is in a collective from the moment that it comes to it, and nothing moves before the last one has come (a
broadcast: before the root has); it is in a receive from the moment that it asks, and nothing moves before the sender
has come to its send. What is left of the span is communication.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gradsync.plan import Collective, Plan, Recv, RecvAny, Reply, Send
from gradsync.plan.trace import Span

NOBODY = -1  # a receive whose source is not known


class Stamps(NamedTuple):
    """When a rank began and ended each operation of its role in each turn, all ranks on one clock; NaN: it did not.

    `source`: the rank whose message a receive has got.  # each (turns, operations)
    """

    start: np.ndarray
    end: np.ndarray
    source: np.ndarray


def stamps(plan: Plan, rank: int, spans: Sequence[Span], first: int, turns: int, offset: float = 0.0) -> Stamps:
    """Of the spans of a rank in turns first .. first + turns - 1; `offset` seconds are added to its clock."""
    place = {op.name: i for i, op in enumerate(plan.role_of[rank].flat)}
    start, end = (np.full((turns, len(place)), np.nan) for _ in range(2))
    source = np.full((turns, len(place)), NOBODY)
    for span in spans:
        if span.rank == rank and 0 <= span.turn - first < turns:
            at = span.turn - first, place[span.operation]
            start[at], end[at] = span.start + offset, span.end + offset
            if span.source is not None:
                source[at] = span.source
    return Stamps(start, end, source)


def waited(plan: Plan, ranks: Sequence[Stamps]) -> list[np.ndarray]:
    """Seconds at the beginning of each span that were waiting for other ranks, of every rank.  # (turns, operations)

    0 if it is not known: of a message that was sent before these turns, or is received after them.
    """
    begun = [each.start.copy() for each in ranks]  # when something could move
    _collectives(plan, ranks, begun)
    _transfers(plan, ranks, begun)
    waits = []
    for each, begin in zip(ranks, begun, strict=True):
        seconds = np.clip(begin - each.start, 0.0, each.end - each.start)
        waits.append(np.nan_to_num(seconds, nan=0.0))
    return waits


def _collectives(plan: Plan, ranks: Sequence[Stamps], begun: list[np.ndarray]) -> None:
    members: dict[tuple[str, tuple[int, ...]], list[tuple[int, int, Collective]]] = defaultdict(list)
    for rank, role in plan.role_of.items():
        for i, op in enumerate(role.flat):
            if isinstance(op, Collective):
                members[op.name, plan.group(op, rank)].append((rank, i, op))
    for group in members.values():
        turns = min(len(ranks[rank].start) for rank, _, _ in group)
        sources = [(rank, i) for rank, i, op in group if op.kind != "broadcast" or rank == plan.root(op, rank)]
        begin = np.max([ranks[rank].start[:turns, i] for rank, i in sources], axis=0)  # NaN if one has not come
        for rank, i, _ in group:
            begun[rank][:turns, i] = begin


def _transfers(plan: Plan, ranks: Sequence[Stamps], begun: list[np.ndarray]) -> None:
    sent: dict[tuple[int, int, str, int, int], list[float]] = defaultdict(list)
    received: dict[tuple[int, int, str, int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for rank, role in plan.role_of.items():
        place = {op.name: i for i, op in enumerate(role.flat)}
        transfers = [(i, op) for i, op in enumerate(role.flat) if isinstance(op, Send | Recv | RecvAny | Reply)]
        for turn in range(len(ranks[rank].start)):
            for i, op in transfers:
                if np.isnan(ranks[rank].start[turn, i]):
                    continue  # the rank has not had this turn
                line = op.channel, getattr(op, "rail", 0), op.tag
                if isinstance(op, Send | Reply):
                    to = op.to if isinstance(op, Send) else int(ranks[rank].source[turn, place[op.to]])
                    sent[rank, to, *line].append(ranks[rank].start[turn, i])
                else:
                    received[int(ranks[rank].source[turn, i]), rank, *line].append((rank, turn, i))
    for key, places in received.items():
        if len(starts := sent.get(key, [])) == len(places):
            for start, (rank, turn, i) in zip(starts, places, strict=True):
                begun[rank][turn, i] = start


def with_waits(plan: Plan, spans: Sequence[Span], seconds: Mapping[int, np.ndarray], first: int) -> tuple[Span, ...]:
    """The spans with what each rank has waited in them; those of other turns and ranks as they are."""
    place = {rank: {op.name: i for i, op in enumerate(plan.role_of[rank].flat)} for rank in seconds}
    spans_with_waits = []
    for span in spans:
        if span.rank in seconds and 0 <= span.turn - first < len(seconds[span.rank]):
            wait = float(seconds[span.rank][span.turn - first, place[span.rank][span.operation]])
            span = span._replace(waited=wait) if wait > 0 else span
        spans_with_waits.append(span)
    return tuple(spans_with_waits)

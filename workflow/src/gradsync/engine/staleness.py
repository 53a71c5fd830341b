"""How old the values are that workers compute with: the updates by others between a worker's read and its own update.

A master that takes from anybody and replies counts the messages between its reply to a worker and the next one of that
worker. In shared memory, a worker's read and its addition lie apart by the additions of others that end between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from gradsync.plan import Plan, RecvAny
from gradsync.plan.trace import Span

MEMORY = -1  # the place of updates in shared memory; others are ranks


class Arrival(NamedTuple):
    """One update: where (a master's rank, or MEMORY), its turn there, by whom, and how many updates it came late."""

    place: int
    turn: int
    operation: str
    source: int
    staleness: int


class Arrivals:
    """Takes the spans of all ranks, segment by segment, each in order of time."""

    def __init__(self, plan: Plan):
        self.takes: set[tuple[int, str]] = set()
        for role in plan.roles:
            names = [op.name for op in role.flat if isinstance(op, RecvAny)]
            self.takes |= {(rank, name) for rank in role.ranks for name in names}
        self.updates: dict[int, int] = defaultdict(int)  # by place
        self.read: dict[tuple[int, int], int] = {}  # (place, worker) -> updates when it last read

    def take(self, spans: Iterable[Span]) -> list[Arrival]:
        """The updates among `spans`, which are on one clock, in order."""
        taken = []
        for span in sorted(spans, key=_moment):
            if span.verb == "shared_read":
                self.read[MEMORY, span.rank] = self.updates[MEMORY]
            elif span.verb == "shared_add":
                taken.append(self._update(MEMORY, span, span.rank))
            elif (span.rank, span.operation) in self.takes and span.source is not None:
                taken.append(self._update(span.rank, span, span.source))
                self.read[span.rank, span.source] = self.updates[span.rank]
        return taken

    def _update(self, place: int, span: Span, source: int) -> Arrival:
        staleness = self.updates[place] - self.read.get((place, source), 0)
        self.updates[place] += 1
        return Arrival(place, span.turn, span.operation, source, staleness)


def _moment(span: Span) -> float:
    return span.start if span.verb == "shared_read" else span.end


def replayed(arrivals: Iterable[Arrival]) -> dict[tuple[int, int, str], int]:
    """The arrivals at masters, as the oracle takes them: (rank, turn, operation) -> source."""
    return {(each.place, each.turn, each.operation): each.source for each in arrivals if each.place != MEMORY}

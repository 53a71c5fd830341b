"""Reduce-scatters behind backward, all-gathers behind the next forward and in gaps of backward: the shortest period.

Messages are those of `updates/sharded.py`: each is scattered once its gradients are ready, and gathered on the same
lane. All gathers of a turn have ended when its next forward has, so every backward finds the lane idle, and the period
is

    backward with the scatters, and the gathers that fit between two of them
    + the gathers that are left, in forward order, with the forward that waits for them.

Read from its end, forward is a backward: a layer is "ready" once all layers behind it have been computed, and gathers
leave in backward order. So without gaps each half is the problem that `optimal.py` solves, for the seconds of that
half (`costs/half.py`); its groupings for either half are where the search begins, besides constant buckets. From the
best of them a local search joins and splits messages and moves borders. The result is no proven optimum;
`Halves.bound_seconds` is what no messages can undercut.

Forward is taken for the reverse of backward, and updates take nothing: where they do, simulations take longer than
planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gradsync.costs import MessageCost
from gradsync.costs.half import halves
from gradsync.errors import InputError
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped
from gradsync.schedules._groupings import exact_by_rows

UPDATE = "sharded"
BUCKETS = 16  # constant sizes tried, from SMALLEST bytes to the whole model
SMALLEST = 32 * 1024
LATE = (0.0, 0.3, 0.6, 0.9)  # of its seconds, by which a gather may delay the next scatter
BETTER = 1.0 - 1e-9

Lasts = tuple[int, ...]
"""The last layers of messages of consecutive layers, in backward order."""


def schedule(workload: Workload, cost: MessageCost, *, effort: int = 40_000) -> tuple[Message, ...]:
    """The messages of the shortest period found; `effort`: messages that the local search times, about."""
    if effort < 0:
        raise InputError(f"pipelined: effort={effort}: at least 0")
    lasts, shortest = searched(Halves(workload, cost), effort)
    gathered_after = dict(shortest.gathers)
    return tuple(
        message._replace(gathered_after=gathered_after.get(number)) for number, message in enumerate(grouped(lasts))
    )


class Period(NamedTuple):
    """Seconds from one forward to the next; messages gathered in gaps of backward, each with the one it follows."""

    seconds: float
    gathers: tuple[tuple[int, int], ...]


class Halves:
    """A workload and a cost, with the periods of messages."""

    def __init__(self, workload: Workload, cost: MessageCost):
        of_kinds = halves(cost)
        self.scatter, self.gather = of_kinds["reduce_scatter"], of_kinds["all_gather"]
        self.total = np.concatenate([[0.0], np.cumsum(workload.sizes())])
        self.bytes: list[float] = self.total.tolist()
        self.backward = np.cumsum([layer.backward_seconds for layer in workload.layers])
        self.ready: list[float] = self.backward.tolist()  # from the beginning of backward
        self.forward = np.concatenate([[0.0], np.cumsum(workload.forward_by_layer())])
        self.ahead: list[float] = self.forward.tolist()
        self.known: dict[float, tuple[float, float]] = {}

    def seconds(self, first: int, last: int) -> tuple[float, float]:
        """Of the reduce-scatter, and of the all-gather, of layers first..last."""
        size = self.bytes[last + 1] - self.bytes[first]
        if size not in self.known:
            self.known[size] = float(self.scatter.seconds(size)), float(self.gather.seconds(size))
        return self.known[size]

    def period(self, lasts: Lasts) -> Period:
        """The shortest period of these messages over what a gather in a gap of backward may stick out."""
        firsts = [0, *(last + 1 for last in lasts[:-1])]
        seconds = [self.seconds(first, last) for first, last in zip(firsts, lasts, strict=True)]
        return min(self._period(firsts, lasts, seconds, late) for late in LATE)

    def _period(
        self, firsts: Sequence[int], lasts: Lasts, seconds: Sequence[tuple[float, float]], late: float
    ) -> Period:
        """A gather goes into a gap of backward unless it delays the next scatter by more than this share of itself."""
        lane, gathered, gathers = 0.0, 0, []
        for number, last in enumerate(lasts):
            ready = self.ready[last]
            while gathered < number and lane + seconds[gathered][1] * (1 - late) <= ready:
                lane += seconds[gathered][1]
                gathers.append((gathered, number - 1))
                gathered += 1
            lane = max(lane, ready) + seconds[number][0]
        now = self.ready[-1]
        for number in reversed(range(len(lasts))):
            if number >= gathered:
                lane += seconds[number][1]
                now = max(now, lane)
            now += self.ahead[lasts[number] + 1] - self.ahead[firsts[number]]
        return Period(now, tuple(gathers))

    def bound_seconds(self) -> float:
        """No period is shorter: computation, or the transfer of all bytes."""
        transfer = sum(half.least_transfer_seconds(self.bytes[-1]) for half in (self.scatter, self.gather))
        return max(self.ready[-1] + self.ahead[-1], transfer)


def beginnings(net: Halves) -> Iterator[Lasts]:
    """Messages to begin with: constant buckets, and the exact ones of either half alone."""
    total, layers = net.total, len(net.ready)
    for size in np.geomspace(min(SMALLEST, total[-1]), total[-1], BUCKETS):
        for ends in (total[1:], total[-1] - total[:-1]):  # buckets counted from the end of the net, or from its front
            borders = np.flatnonzero(np.diff(np.floor(ends / size * (1 - 1e-12)))).tolist()
            yield (*borders, layers - 1)
    # forward: until a layer has been passed, from the end back
    for ready, half in ((net.backward, net.scatter), (net.forward[1:], net.gather)):
        lasts, _ = exact_by_rows(ready, lambda j, half=half: half.seconds(total[j] - total[:j]))  # type: ignore[misc]
        yield lasts


def searched(net: Halves, effort: int) -> tuple[Lasts, Period]:
    """The messages of the shortest period that the search finds, and that period."""
    best = min(beginnings(net), key=lambda lasts: net.period(lasts).seconds)
    shortest, bound = net.period(best), net.bound_seconds()
    improved = True
    while improved and effort > 0 and shortest.seconds > bound / BETTER:
        improved = False
        for other in neighbours(best, net):
            effort -= len(LATE) * len(other)
            period = net.period(other)
            if period.seconds < shortest.seconds * BETTER:
                best, shortest, improved = other, period, True
                break
            if effort <= 0:
                break
    return best, shortest


def neighbours(lasts: Lasts, net: Halves) -> Iterator[Lasts]:
    """Messages of which one is split in the middle, joined with the next, or gives layers to it or takes some."""
    first = 0
    for number, last in enumerate(lasts):
        before, after = lasts[:number], lasts[number + 1 :]
        if last > first:
            middle = (net.bytes[first] + net.bytes[last + 1]) / 2
            border = min(max(int(np.searchsorted(net.total, middle)) - 1, first), last - 1)
            yield (*before, border, last, *after)
        if after:
            yield (*before, *after)
            for moved in sorted({last - 1, last + 1, (first + last) // 2, (last + after[0]) // 2} - {last}):
                if first <= moved < after[0]:
                    yield (*before, moved, *after)
        first = last + 1

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

A message that is hidden still takes its host's time, and cores that start messages don't compute: no period is taken
for less than computation with the host's seconds of all messages (`costs/contention.py`). Of groupings that take as
long, the one of fewer messages counts, also where nothing is known of the host: in the end messages are joined as long
as that costs nothing.

With `lanes`, each message is split over so many in equal pieces that leave together, as `striped.py` does: for links
of which one connection gets a part. A half takes what a piece alone takes, its transfer slowed down by the contention
of so many, and its host starts the pieces in turn.

If the cost knows how messages and computation slow one another down (`costs/beside.py`), a period is the one under that
slow-down, with the order of messages of the period without it (`_together.py`). The bound stays: nothing gets faster.

Forward is taken for the reverse of backward, and updates take nothing: where they do, simulations take longer than
planned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from gradsync.costs import MessageCost
from gradsync.costs.beside import interference
from gradsync.costs.contention import host_seconds
from gradsync.costs.half import halves
from gradsync.errors import InputError
from gradsync.plan import DTYPE_BYTES
from gradsync.plan.workload import Workload
from gradsync.schedules import DEFAULT_LANE, Message, grouped
from gradsync.schedules._groupings import exact_by_rows
from gradsync.schedules._neighbours import Lasts, constant_buckets, joined, neighbours
from gradsync.schedules._plans import refuse_lanes
from gradsync.schedules._timed import rates
from gradsync.schedules._together import Flight, Work, end

UPDATE = "sharded"
LATE = (0.0, 0.3, 0.6, 0.9)  # of its seconds, by which a gather may delay the next scatter
BETTER = 1.0 - 1e-9
SLOWED = 12  # messages that are timed as fast as one that is slowed


def schedule(workload: Workload, cost: MessageCost, *, effort: int = 40_000, lanes: int = 1) -> tuple[Message, ...]:
    """The messages of the shortest period found; `effort`: messages that the local search times, about.

    Raises InputError for a negative effort or fewer than one lane.
    """
    if effort < 0:
        raise InputError(f"pipelined: effort={effort}: at least 0")
    refuse_lanes("pipelined", lanes)
    lasts, shortest = searched(Halves(workload, cost, lanes), effort)
    gathered_after = dict(shortest.gathers)
    messages = tuple(
        message._replace(gathered_after=gathered_after.get(number)) for number, message in enumerate(grouped(lasts))
    )
    return messages if lanes == 1 else split(messages, workload, lanes)


def split(messages: tuple[Message, ...], workload: Workload, lanes: int) -> tuple[Message, ...]:
    """Each message in a piece per lane, and none without an element; a piece is gathered on the lane of its scatter."""
    width = DTYPE_BYTES[workload.unit]
    sizes = (sum(layer.bytes for layer in workload.layers[each.first : each.last + 1]) for each in messages)
    counts = [min(lanes, size // width) for size in sizes]
    begins = list(accumulate(counts, initial=0))
    pieces = []
    for message, count in zip(messages, counts, strict=True):
        other = message.gathered_after
        for index in range(count):
            after = None if other is None else begins[other] + min(index, counts[other] - 1)
            lane = f"{DEFAULT_LANE}{index}"
            pieces.append(message._replace(lane=lane, part=(index, count), gathered_after=after))
    return tuple(pieces)


class Period(NamedTuple):
    """Seconds from one forward to the next; messages gathered in gaps of backward, each with the one it follows.

    `charged`: the same, but no less than what the cores of a rank have to do. `late`: by which share of itself each of
    these may delay the next scatter.
    """

    seconds: float
    charged: float
    gathers: tuple[tuple[int, int], ...]
    late: float


class Halves:
    """A workload and a cost, with the periods of messages."""

    def __init__(self, workload: Workload, cost: MessageCost, lanes: int = 1):
        self.lanes, self.rate = lanes, rates(cost, lanes)[lanes]
        of_kinds = halves(cost)
        self.scatter, self.gather = of_kinds["reduce_scatter"], of_kinds["all_gather"]
        self.total = np.concatenate([[0.0], np.cumsum(workload.sizes())])
        self.bytes: list[float] = self.total.tolist()
        self.backward = np.cumsum([layer.backward_seconds for layer in workload.layers])
        self.ready: list[float] = self.backward.tolist()  # from the beginning of backward
        self.forward = np.concatenate([[0.0], np.cumsum(workload.forward_by_layer())])
        self.ahead: list[float] = self.forward.tolist()
        self.host = lanes * (host_seconds(self.scatter) + host_seconds(self.gather))
        self.known: dict[float, tuple[float, float]] = {}
        self.interference = interference(cost)
        self.factors: dict[float, tuple[float, float]] = {}

    def seconds(self, first: int, last: int) -> tuple[float, float]:
        """Of the reduce-scatter, and of the all-gather, of layers first..last."""
        size = self.bytes[last + 1] - self.bytes[first]
        if size not in self.known:
            self.known[size] = float(self.of(self.scatter, size)), float(self.of(self.gather, size))
        return self.known[size]

    def of(self, half: MessageCost, size: Any) -> Any:
        """Seconds of that half of messages of so many bytes, in pieces on the lanes."""
        if self.lanes == 1:
            return half.seconds(size)
        piece, startup = size / self.lanes, half.startup_seconds(size / self.lanes)
        return startup + (self.lanes - 1) * host_seconds(half) + (half.seconds(piece) - startup) / self.rate

    def period(self, lasts: Lasts, lates: Sequence[float] = LATE) -> Period:
        """The shortest period of these messages over what a gather in a gap of backward may stick out."""
        # computation, and the host's time of both halves of each message
        least = self.ready[-1] + self.ahead[-1] + len(lasts) * self.host
        firsts = [0, *(last + 1 for last in lasts[:-1])]
        seconds = [self.seconds(first, last) for first, last in zip(firsts, lasts, strict=True)]
        found = [self._period(firsts, lasts, seconds, late) for late in lates]
        if self.interference is not None:
            slowed = {gathers: self._slowed(firsts, lasts, seconds, gathers) for gathers in {each[1] for each in found}}
            found = [(slowed[gathers], gathers) for _, gathers in found]
        (shortest, gathers), late = min(zip(found, lates, strict=True), key=lambda each: each[0][0])
        return Period(shortest, max(shortest, least), gathers, late)

    def _period(
        self, firsts: Sequence[int], lasts: Lasts, seconds: Sequence[tuple[float, float]], late: float
    ) -> tuple[float, tuple[tuple[int, int], ...]]:
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
        return now, tuple(gathers)

    def _slowed(
        self,
        firsts: Sequence[int],
        lasts: Lasts,
        seconds: Sequence[tuple[float, float]],
        gathers: tuple[tuple[int, int], ...],
    ) -> float:
        """The period if messages and computation slow one another down, with these gathers in gaps of backward."""
        count, flights = len(lasts), list[Flight]()
        scattered, gathered = [0] * count, [0] * count  # their numbers on the lane
        factors = [self._factors(first, last) for first, last in zip(firsts, lasts, strict=True)]

        def gather(number: int) -> None:
            gathered[number] = len(flights)
            flights.append(Flight(seconds[number][1], *factors[number], updated=scattered[number]))

        for number in range(count):
            scattered[number] = len(flights)
            flights.append(Flight(seconds[number][0], *factors[number], after=number))
            for other, after in gathers:
                if after == number:
                    gather(other)
        in_gaps = {number for number, _ in gathers}
        for number in reversed(range(count)):
            if number not in in_gaps:
                gather(number)
        ready = [0.0, *(self.ready[last] for last in lasts)]
        works = [Work(after - before) for before, after in pairwise(ready)]
        for number in reversed(range(count)):
            works.append(Work(self.ahead[lasts[number] + 1] - self.ahead[firsts[number]], gathered[number]))
        assert self.interference is not None
        return end(flights, works, self.interference.handover_seconds)

    def _factors(self, first: int, last: int) -> tuple[float, float]:
        size = self.bytes[last + 1] - self.bytes[first]
        if size not in self.factors:
            assert self.interference is not None
            self.factors[size] = self.interference.factors(size)
        return self.factors[size]

    def bound_seconds(self) -> float:
        """Nothing is charged less: computation and a host that starts one message, or the transfer of all bytes."""
        alone = sum(half.least_transfer_seconds(self.bytes[-1]) for half in (self.scatter, self.gather))
        transfer = alone / (self.lanes * self.rate)
        return max(self.ready[-1] + self.ahead[-1] + self.host, transfer)


def beginnings(net: Halves) -> Iterator[Lasts]:
    """Messages to begin with: constant buckets, and the exact ones of either half alone."""
    total = net.total
    yield from constant_buckets(total)
    # forward: until a layer has been passed, from the end back
    for ready, half in ((net.backward, net.scatter), (net.forward[1:], net.gather)):
        lasts, _ = exact_by_rows(ready, lambda j, half=half: net.of(half, total[j] - total[:j]))  # type: ignore[misc]
        yield lasts


def searched(net: Halves, effort: int) -> tuple[Lasts, Period]:
    """The messages that are charged least of those that the search finds, and their period."""
    return _searched(net, list(beginnings(net)), effort) if net.interference is None else _beside(net, effort)


def _beside(net: Halves, effort: int) -> tuple[Lasts, Period]:
    """The same under interference: the search begins with what half the effort finds without, and short beginnings."""
    alone = copy(net)
    alone.interference = None
    begins = list(beginnings(net))
    without, _ = _searched(alone, begins, effort // 2)
    fewest = sorted(begins, key=len)
    timed = accumulate(SLOWED * len(LATE) * len(lasts) for lasts in fewest)
    taken = [lasts for lasts, messages in zip(fewest, timed, strict=True) if messages <= effort // 4]
    return _searched(net, [without, *taken], effort // 4)


def _searched(net: Halves, begins: list[Lasts], effort: int) -> tuple[Lasts, Period]:
    begun = [(net.period(lasts), lasts) for lasts in dict.fromkeys(begins)]
    least = min(period.charged for period, _ in begun)
    shortest, best = min(
        (each for each in begun if each[0].charged * BETTER <= least), key=lambda each: (len(each[1]), each[0].charged)
    )
    bound = net.bound_seconds()
    weight = len(LATE) * (1 if net.interference is None else SLOWED)
    improved, left = True, effort
    while improved and left > 0 and shortest.charged > bound / BETTER:
        improved = False
        for other in neighbours(best, net.bytes):
            left -= weight * len(other)
            period = net.period(other)
            if period.charged < shortest.charged * BETTER:
                best, shortest, improved = other, period, True
                break
            if left <= 0:
                break
    most, late = shortest.charged / BETTER, shortest.late
    best = joined(best, lambda fewer: net.period(fewer, (late,)).charged <= most)
    return best, net.period(best, (late,))

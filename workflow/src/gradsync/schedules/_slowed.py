"""Messages on one lane behind a backward that they slow down, and that slows them: when they end, and which end first.

While a message is in flight and backward goes on, the message takes `communication` and backward `computation` times
as long (`costs/interference.py`); a message that waited for its gradient leaves a hand-over after it is ready, one that
waited for the lane at once. These are the times of the simulator (`engine/interference.py`) of a plan of all-reduces on
one lane.

A message that leaves earlier slows more of backward. So finishing earlier may hurt, which no dynamic program over
prefixes knows, and it may pay to hold messages until backward has ended: then those that are left take least one after
the other. Of few layers all groupings are tried, held from each message on; beyond, a local search begins with the best
of many.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

import numpy as np

from gradsync.costs.interference import Interference
from gradsync.plan.workload import Workload
from gradsync.schedules import Message, grouped
from gradsync.schedules._neighbours import Lasts, constant_buckets, joined, neighbours

EVERY = 12  # layers: of so many all groupings are tried
EFFORT = 10_000  # messages that the local search may time, and as many that joining may
DELAYS = (0.0, 1.0)  # what a second that backward is late counts, when a prefix of messages is chosen
SAME = 1e-12  # of the end: what is nearer is rounding


class State(NamedTuple):
    """When the lane is free, and by how much backward is late then, in seconds."""

    free: float
    late: float


FIRST = State(-inf, 0.0)  # of an iteration: a gradient that is ready at once is waited for, too


class Sending(NamedTuple):
    """When the last message ends; `number` of messages, of which those from layer `held` on wait for backward."""

    end: float
    number: int
    held: int


class Slowed:
    """A workload beside messages that take `alone[j, i]` seconds alone for layers i..j-1, infinitely many for i >= j.

    `rest`: seconds of the messages of layers i.. one after the other, at least, and the last layer of the first of
    them.
    """

    def __init__(self, workload: Workload, alone: np.ndarray, interference: Interference):
        self.total = np.concatenate([[0.0], np.cumsum(workload.sizes())])
        sizes = np.maximum(self.total[:, None] - self.total[None, :], 1.0)
        self.alone, self.handover = alone, interference.handover_seconds
        self.computation, self.communication = interference.factor_arrays(sizes)
        self.ready: list[float] = workload.ready_seconds().tolist()
        self.layers, self.backward_end = len(self.ready), self.ready[-1]
        self.timed = 0
        n, rest = self.layers, np.zeros(self.layers + 1)
        self.first_of_rest, self.number_of_rest = [0] * n, [0] * (n + 1)
        message = 1e-13 * alone[n, 0]  # what each counts besides, so that of equal rests that of fewer is taken
        for i in range(n - 1, -1, -1):
            ends = alone[i + 1 :, i] + rest[i + 1 :]
            last = i + int(ends.argmin())
            rest[i] = ends[last - i] + message
            self.first_of_rest[i], self.number_of_rest[i] = last, 1 + self.number_of_rest[last + 1]
        self.rest: list[float] = (rest - message * np.array(self.number_of_rest)).tolist()

    def start(self, state: State, ready: float) -> float:
        """When a message leaves whose gradients are ready then."""
        return state.free if ready <= state.free else ready + self.handover

    def sent(self, state: State, first: int, last: int) -> State:
        """After a message of these layers."""
        late = state.late
        start = self.start(state, self.ready[last] + late)
        seconds = self.alone.item(last + 1, first)
        left = self.backward_end + late - start  # of backward, as long as nothing slows it
        if left <= 0.0:
            return State(start + seconds, late)
        computation, communication = self.computation.item(last + 1, first), self.communication.item(last + 1, first)
        slowed = communication * seconds
        if slowed <= left * computation:
            return State(start + slowed, late + slowed * (1.0 - 1.0 / computation))
        beside = left * computation
        return State(start + beside + seconds - beside / communication, late + beside - left)

    def held(self, state: State, first: int) -> float:
        """The end of the messages of layers first.., if they wait until backward has ended."""
        return self.start(state, self.backward_end + state.late) + self.rest[first]

    def sending(self, lasts: Lasts) -> Sending:
        """These messages, or the first of them and the others held, in as many as take least: what ends first."""
        state, first, n = FIRST, 0, self.layers
        best = Sending(self.held(state, 0), self.number_of_rest[0], 0)
        for number, last in enumerate(lasts, start=1):
            state = self.sent(state, first, last)
            first = last + 1
            end = self.held(state, first) if first < n else state.free
            if end < best.end * (1 + SAME if first == n else 1 - SAME):
                best = Sending(end, number + self.number_of_rest[first], first)
        self.timed += len(lasts)
        return best

    def messages(self, lasts: Lasts) -> tuple[Message, ...]:
        """What `sending` times."""
        held = self.sending(lasts).held
        sent = [last for last in lasts if last < held]
        return tuple(
            message._replace(after_backward=message.first >= held)
            for message in grouped([*sent, *self.lasts_of_rest(held)])
        )

    def lasts_of_rest(self, first: int) -> list[int]:
        """The last layers of the messages that take least one after the other."""
        lasts = []
        while first < self.layers:
            lasts.append(self.first_of_rest[first])
            first = lasts[-1] + 1
        return lasts

    def by_rows(self, delay: float) -> list[Lasts]:
        """Messages of which each prefix ends, and delays backward, least: `delay` of a second late is one later.

        Twice: sent behind backward, and held from where that ends first.
        """
        n = self.layers
        free, late, begin = np.full(n + 1, FIRST.free), np.full(n + 1, FIRST.late), [0] * (n + 1)
        for j in range(1, n + 1):
            f, d, seconds = free[:j], late[:j], self.alone[j, :j]
            computation, communication = self.computation[j, :j], self.communication[j, :j]
            ready = self.ready[j - 1] + d
            start = np.where(ready <= f, f, ready + self.handover)
            beside = np.maximum(self.backward_end + d - start, 0.0) * computation
            slowed = communication * seconds
            overlapped = np.minimum(slowed, beside)
            ends = start + overlapped + seconds - overlapped / communication
            lates = d + overlapped * (1.0 - 1.0 / computation)
            i = begin[j] = int((ends + (delay * lates if j < n else 0.0)).argmin())
            free[j], late[j] = ends[i], lates[i]
        held = min(range(n), key=lambda i: self.held(State(free.item(i), late.item(i)), i))
        return [tuple(_ends(begin, n)), (*_ends(begin, held), *self.lasts_of_rest(held))]


def _ends(begin: list[int], j: int) -> list[int]:
    """Last layers of the messages that end with layer j-1, by the first layer of each."""
    lasts = []
    while j > 0:
        lasts.append(j - 1)
        j = begin[j]
    return lasts[::-1]


def first_to_end(net: Slowed, beginnings: Iterable[Lasts], soonest: float) -> Lasts:
    """The messages that end first, of equals the fewest: of all if there are few layers, else of those looked at.

    None of `beginnings` ends before them. Nothing ends before `soonest`.
    """
    by_rows = (lasts for delay in DELAYS for lasts in net.by_rows(delay))
    candidates = dict.fromkeys([*beginnings, *constant_buckets(net.total), *by_rows])
    sendings = {lasts: net.sending(lasts) for lasts in candidates}
    least = min(sending.end for sending in sendings.values()) * (1 + SAME)
    best = min((lasts for lasts in candidates if sendings[lasts].end <= least), key=lambda each: sendings[each].number)
    if net.layers <= EVERY:
        return of_all(net, best)
    shortest, most, improved = sendings[best].end, net.timed + EFFORT, True
    total = net.total.tolist()
    while improved and shortest > soonest * (1 + SAME) and net.timed < most:
        improved = False
        for other in neighbours(best, total):
            end = net.sending(other).end
            if end < shortest * (1 - SAME):
                best, shortest, improved = other, end, True
                break
            if net.timed >= most:
                break
    most = net.timed + EFFORT
    return joined(best, lambda fewer: net.timed < most and net.sending(fewer).end <= shortest)


def of_all(net: Slowed, best: Lasts) -> Lasts:
    """The messages that end first of all groupings, of equals the fewest; `best` are some to begin with."""
    n = net.layers
    shortest = np.minimum.accumulate(net.alone[n, ::-1])[::-1].tolist()  # of the last message, from layers i.. on
    least = net.sending(best)
    stack: list[tuple[Lasts, State]] = [((), FIRST)]
    while stack:
        lasts, state = stack.pop()
        first = lasts[-1] + 1 if lasts else 0
        end = net.held(state, first) if first < n else state.free
        number = len(lasts) + net.number_of_rest[first]
        if end < least.end * (1 - SAME) or (end <= least.end * (1 + SAME) and number < least.number):
            best = (*lasts, *net.lasts_of_rest(first))
            least = Sending(min(end, least.end), number, first)
        soonest = max(state.free + net.rest[first], net.backward_end + state.late + shortest[first])
        if first < n and soonest <= least.end * (1 + SAME):
            stack += (((*lasts, last), net.sent(state, first, last)) for last in range(first, n))
    return best

"""When messages under contention begin and end: the times that `simulate` has, fast enough to plan with.

A message is started by the host (`host_seconds`, which those that start at the same time share), then waits for its
latency (which overlaps), then transfers. The link carries the transfer of `capacity` messages at full speed at a time:
each of k in flight goes at the rate min(1, capacity / k). A lane has one message at a time, in the order of the list.

Messages in one stage go at one rate, so one counter of how much each has been served is enough: a message ends once the
counter has risen by its own amount since the message began.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

import numpy as np

from gradsync.costs import MessageCost
from gradsync.costs.contention import capacity, host_seconds
from gradsync.plan import DTYPE_BYTES, piece
from gradsync.plan.workload import Workload
from gradsync.schedules import Message


class Stages(NamedTuple):
    """Seconds of a message alone."""

    host: float
    latency: float
    transfer: float


class Span(NamedTuple):
    """Seconds, forward starting at 0."""

    start: float
    end: float


NOTHING, TRANSFERRED, STARTED, HOSTED = range(4)  # the stage of a message that ends next


class Link:
    """A link at the moment `now` with the messages in flight on it, each with a number; `copy` lets a search branch.

    `served` (of transfer) and `hosted`: seconds that each message in that stage has had. Lists are sorted by end.
    """

    __slots__ = ("flowing", "hosted", "hosting", "now", "rates", "served", "starting")

    def __init__(self, rates: Sequence[float]):
        """`rates[k]` is the share that each of k flows gets of the speed of one alone."""
        self.rates = rates
        self.now = self.served = self.hosted = 0.0
        self.hosting: list[tuple[float, int, float, float]] = []  # (its mark of `hosted`, number, latency, transfer)
        self.starting: list[tuple[float, int, float]] = []  # (time, number, transfer)
        self.flowing: list[tuple[float, int]] = []  # (its mark of `served`, number)

    def copy(self) -> Link:
        """The same, on its own from here on."""
        new = Link.__new__(Link)
        new.rates, new.now, new.served, new.hosted = self.rates, self.now, self.served, self.hosted
        new.hosting, new.starting, new.flowing = self.hosting[:], self.starting[:], self.flowing[:]
        return new

    def backlog(self) -> float:
        """Seconds of transfer that messages in flight still need, each as if alone."""
        flowing = sum(mark - self.served for mark, _ in self.flowing)
        return flowing + sum(entry[-1] for entry in self.starting) + sum(entry[-1] for entry in self.hosting)

    def add(self, number: int, stages: Stages) -> None:
        """A message leaves now."""
        host, latency, transfer = stages
        if host > 0.0:
            insort(self.hosting, (self.hosted + host, number, latency, transfer))
        else:
            insort(self.starting, (self.now + latency, number, transfer))

    def next(self, limit: float = inf) -> int:
        """Go on to the next change, or to the time `limit` if that is sooner; the message that ends then, else -1."""
        starting, flowing, hosting, now = self.starting, self.flowing, self.hosting, self.now
        rate = self.rates[len(flowing)]
        until, change = (now + (flowing[0][0] - self.served) / rate, TRANSFERRED) if flowing else (inf, NOTHING)
        if starting and starting[0][0] <= until:
            until, change = starting[0][0], STARTED
        if hosting:
            hosted = now + (hosting[0][0] - self.hosted) * len(hosting)
            if hosted <= until:
                until, change = hosted, HOSTED
        if until > limit:
            until, change = limit, NOTHING
        if hosting:
            self.hosted += (until - now) / len(hosting)
        self.now = until
        if change == TRANSFERRED:
            self.served, number = flowing.pop(0)
            return number
        if flowing:
            self.served += (until - now) * rate
        if change == STARTED:
            _, number, transfer = starting.pop(0)
            if transfer <= 0.0:
                return number
            insort(flowing, (self.served + transfer, number))
        elif change == HOSTED:
            self.hosted, number, latency, transfer = hosting.pop(0)
            insort(starting, (until + latency, number, transfer))
        return -1


class Lanes:
    """Messages that leave in order, each on the lane that has been free longest, once one is."""

    __slots__ = ("free", "link")

    def __init__(self, link: Link, free: tuple[int, ...]):
        self.link, self.free = link, free

    def launched(self, ready: float, stages: Stages) -> tuple[Lanes, int]:
        """These lanes once the next message has left, not before `ready`; and its lane. `self` stays as it is."""
        link, free = self.link.copy(), self.free
        while link.now < ready or not free:
            if not (link.flowing or link.starting or link.hosting):
                link.now = ready
                break
            lane = link.next(ready if free else inf)
            if lane >= 0:
                free = (*free, lane)
        link.add(free[0], stages)
        return Lanes(link, free[1:]), free[0]

    def drained(self) -> float:
        """When the last message in flight ends, if no other leaves."""
        link = self.link.copy()
        while link.flowing or link.starting or link.hosting:
            link.next()
        return link.now


def idle(cost: MessageCost, lanes: int) -> Lanes:
    """So many lanes with nothing in flight at time 0."""
    return Lanes(Link(rates(cost, lanes)), tuple(range(lanes)))


def rates(cost: MessageCost, most: int) -> list[float]:
    """The rate of each of k flows, for k up to `most`, as a share of what one alone has."""
    carried = capacity(cost)
    return [1.0, *(min(1.0, carried / k) for k in range(1, most + 1))]


def stages(cost: MessageCost, sizes: np.ndarray) -> list[Stages]:
    """Of messages of so many bytes."""
    startup = np.broadcast_to(np.asarray(cost.startup_seconds(sizes), float), sizes.shape)
    transfer = np.asarray(cost.seconds(sizes), float) - startup
    host = np.minimum(host_seconds(cost), startup)
    return [Stages(*each) for each in np.stack([host, startup - host, transfer], 1).tolist()]


def message_bytes(workload: Workload, messages: Sequence[Message]) -> np.ndarray:
    """Bytes of each message; a piece holds whole elements, as in a plan.  # (messages,)"""
    width = DTYPE_BYTES[workload.unit]
    position = np.concatenate([[0], np.cumsum([layer.bytes // width for layer in workload.layers])]).tolist()
    sizes = []
    for message in messages:
        start, stop = piece(position[message.first], position[message.last + 1], *message.part)
        sizes.append((stop - start) * width)
    return np.array(sizes, float)


def spans(workload: Workload, cost: MessageCost, messages: Sequence[Message]) -> list[Span]:
    """Start and end of each of these messages under contention, whatever their lanes and waits."""
    stages_of = stages(cost, message_bytes(workload, messages))
    ready = workload.ready_seconds().tolist()
    waits, followers = _waits(messages)
    due = [(ready[-1 if m.after_backward else m.last], number) for number, m in enumerate(messages)]
    heapq.heapify(due)
    link = Link(rates(cost, len({message.lane for message in messages})))
    start, end = [0.0] * len(messages), [0.0] * len(messages)

    def release(numbers: Sequence[int]) -> None:
        for number in numbers:
            waits[number] -= 1
            if not waits[number]:
                start[number] = link.now
                link.add(number, stages_of[number])

    while due or link.flowing or link.starting or link.hosting:
        ended = link.next(due[0][0] if due else inf)
        if ended >= 0:
            end[ended] = link.now
            release(followers[ended])
        elif due and link.now >= due[0][0]:
            release([heapq.heappop(due)[1]])
    return [Span(*both) for both in zip(start, end, strict=True)]


def _waits(messages: Sequence[Message]) -> tuple[list[int], list[list[int]]]:
    """How many things each message waits for, its gradients among them; and the messages that wait for each."""
    waits = [1] * len(messages)
    followers: list[list[int]] = [[] for _ in messages]
    before: dict[str, int] = {}
    for number, message in enumerate(messages):
        for other in {*message.after, *([before[message.lane]] if message.lane in before else [])}:
            followers[other].append(number)
            waits[number] += 1
        before[message.lane] = number
    return waits, followers


def end_seconds(workload: Workload, cost: MessageCost, messages: Sequence[Message]) -> float:
    """End of the last of these messages, forward starting at 0."""
    return max(span.end for span in spans(workload, cost, messages))

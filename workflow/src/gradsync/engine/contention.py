"""Contention: an event loop of pieces of work that share links or cores, so that rates change as others come and go.

Rates are max-min fair (Bertsekas and Gallager, *Data Networks*, 2nd edition, Section 6.5.2): no piece can go faster
unless another one that is no faster goes slower. Progressive filling finds them: all rates rise together, and a piece
stops at its own `limit`, or as soon as one of its sides (a rank's way out, a link, a rank's cores) carries all that it
can. So no side ever carries more than its capacity, whatever comes and goes meanwhile; and the others get what a piece
can't use of a side because of its limit or of another side.

A piece may take some sides for only a part of what it transfers: those of each worker, say, for what goes to one
server. Its rate is that of the whole of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import NamedTuple


class Side:
    """What messages share: it carries `capacity` of transfer per second and delays each message by `latency` seconds.

    By default a side is a rank's way out or in and carries a second of transfer per second.
    """

    __slots__ = ("capacity", "flows", "latency")

    def __init__(self, capacity: float = 1.0, latency: float = 0.0):
        self.capacity, self.latency = capacity, latency
        self.flows: dict[Flow, None] = {}  # those that take it now, in order of arrival, which decides ties


class Use(NamedTuple):
    """A side that a piece of work takes, and which part of its transfer goes over that side: above 0."""

    side: Side
    part: float = 1.0


class Flow:
    """Pieces of work that all go at the same `rate`, which changes: they take the same `sides` and have one `limit`.

    Each has `passed` so much since the flow was idle, at time `since`; a piece is done once that reaches its mark in
    `ends`. So however many there are, a change of rate is one event. `share` is what each gets of the sides; the rate
    is 0 from the moment that pieces come or go until their shares are known, at the same time.
    """

    __slots__ = ("ends", "limit", "passed", "rate", "share", "sides", "since", "version")

    def __init__(self, sides: list[Use], limit: float = inf):
        self.sides, self.limit = sides, limit
        self.ends: list[tuple[float, int, Callable[[float], None]]] = []  # a heap: mark, turn of arrival, what follows
        self.rate = self.share = self.passed = self.since = 0.0
        self.version = 0


class ContentionLoop:
    """The events, and the flows among them."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Callable[[float], None]]] = []
        self.sequence = 0
        self.flows: dict[tuple[int, float], Flow] = {}
        self.unsettled: dict[Side, None] = {}  # where something has come or gone at this very time

    def _run(self) -> None:
        """All events, until there is none."""
        while self.heap:
            self._next()

    def _next(self) -> float:
        """Handle the next event, and return its time."""
        now, _, action = heapq.heappop(self.heap)
        action(now)
        return now

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (time, self.sequence, action))

    def _begin(self, work: float, sides: list[Use], limit: float, now: float, done: Callable[[float], None]) -> None:
        """So much work begins; whatever takes the same sides passes the very same list `sides`."""
        if work <= 0.0:
            done(now)
            return
        key = id(sides), limit
        if not sides:  # it shares nothing: at its own rate from the moment that it begins
            flow = Flow(sides, limit)
        elif key in self.flows:
            flow = self.flows[key]
        else:
            flow = self.flows[key] = Flow(sides, limit)
        self._join(flow, work, now, done)

    def _join(self, flow: Flow, work: float, now: float, done: Callable[[float], None]) -> None:
        """One more piece of work in `flow`."""
        if flow.ends:
            flow.passed += (now - flow.since) * flow.rate
        else:
            flow.passed = 0.0
            for side, _ in flow.sides:
                side.flows[flow] = None
        flow.since = now
        self.sequence += 1
        heapq.heappush(flow.ends, (flow.passed + work, self.sequence, done))
        if flow.sides:
            self._changed(flow, now)
        else:
            self._pace(flow, now)

    def _changed(self, flow: Flow, now: float) -> None:
        """Pieces of `flow` have come or gone: its sides are shared anew, once for all that happens at this time."""
        flow.rate = 0.0
        if not self.unsettled:
            self._at(now, self._settle)
        for side, _ in flow.sides:
            self.unsettled[side] = None

    def _settle(self, now: float) -> None:
        """Share anew what the changed sides carry, and the sides that flows connect with them, and nothing else."""
        sides, self.unsettled = self.unsettled, {}
        flows = _connected(sides)
        fill(flows)
        for flow in flows:
            if not flow.rate or self._rate(flow) != flow.rate:
                self._pace(flow, now)

    def _rate(self, flow: Flow) -> float:
        return flow.share if flow.sides else min(flow.limit, 1.0)

    def _pace(self, flow: Flow, now: float) -> None:
        """From now on `flow` goes at its new rate."""
        flow.passed += (now - flow.since) * flow.rate
        flow.since = now
        flow.rate = self._rate(flow)
        flow.version += 1
        self._at(
            now + max(flow.ends[0][0] - flow.passed, 0.0) / flow.rate,
            partial(self._end, flow, flow.version),
        )

    def _end(self, flow: Flow, version: int, now: float) -> None:
        if version != flow.version:
            return  # its rate has changed since
        flow.version += 1
        flow.passed, flow.since = flow.ends[0][0], now
        finished = []
        while flow.ends and flow.ends[0][0] <= flow.passed:
            finished.append(heapq.heappop(flow.ends)[2])
        if not flow.ends:
            for side, _ in flow.sides:
                del side.flows[flow]
        if flow.sides:
            self._changed(flow, now)
        for done in finished:
            done(now)


def _connected(sides: Iterable[Side]) -> dict[Flow, None]:
    """The flows on these sides, on the sides of those, and so on."""
    flows: dict[Flow, None] = {}
    seen = dict.fromkeys(sides)
    waiting = list(seen)
    for side in waiting:
        for flow in side.flows:
            if flow not in flows:
                flows[flow] = None
                for other, _ in flow.sides:
                    if other not in seen:
                        seen[other] = None
                        waiting.append(other)
    return flows


def fill(flows: Iterable[Flow]) -> None:
    """Set the max-min fair `share` of each of `flows`, which are all that take any of their sides.

    A side whose flows all rise is full at its capacity over what they take of it. Each flow that stops leaves it as
    much or more for each of the others, so that the rate at which a side was last seen to be full is never too high: a
    heap gives the side that is full next. With S sides, F flows and U uses of sides this takes (S + F + U) log (S + F).
    """
    rising = dict.fromkeys(flows)
    if len(rising) == 1:
        for flow in rising:
            pieces = len(flow.ends)
            flow.share = min(flow.limit, min([side.capacity / (pieces * part) for side, part in flow.sides]))
        return
    filling: dict[Side, list[float]] = {}  # what is left of it, what rising flows take at a rate of 1, their number
    for flow in rising:
        pieces = len(flow.ends)
        for side, part in flow.sides:
            state = filling.get(side)
            if state is None:
                filling[side] = [side.capacity, pieces * part, 1]
            else:
                state[1] += pieces * part
                state[2] += 1
    stops: list[tuple[float, int, Side | Flow]]  # (rate, order of ties, what ends the rise at that rate)
    stops = [(left / taken, i, side) for i, (side, (left, taken, _)) in enumerate(filling.items())]
    stops += [(flow.limit, i, flow) for i, flow in enumerate(rising, start=len(stops)) if flow.limit < inf]
    heapq.heapify(stops)
    while rising:
        rate, number, cause = heapq.heappop(stops)
        if isinstance(cause, Side):
            left, taken, count = filling[cause]
            if not count:
                continue
            if left / taken > rate:
                heapq.heappush(stops, (left / taken, number, cause))
                continue
            stopping = [flow for flow in cause.flows if flow in rising]
        else:
            stopping = [cause] if cause in rising else []
        for flow in stopping:
            del rising[flow]
            flow.share = rate
        for flow in stopping if rising else ():
            pieces = len(flow.ends)
            for side, part in flow.sides:
                state = filling[side]
                state[0] -= pieces * part * rate
                state[1] -= pieces * part
                state[2] -= 1

"""Work that shares what it uses: an event loop of pieces of work whose rates change as others come and go.

Every side that a piece of work takes (a rank's way out, a link, a rank's cores) is split equally among those that take
it at that time; the piece goes at the smallest of its shares, and no faster than its own `limit`. Of some sides a piece
takes only a part of what it transfers: of each worker, say, what goes to one server. So no side ever carries more than
its capacity, exactly, whatever comes and goes meanwhile. Shares are equal, not max-min: what one can't use of its
share, because of its limit or of another side, the others don't get. Where all have the same sides and limits, as
messages of a network of which no links are known, nothing is lost so.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from math import inf
from typing import NamedTuple


class Side:
    """What messages share: it carries `capacity` of transfer a second and delays each message by `latency` seconds.

    By default a side is a rank's way out or in and carries a second of transfer a second.
    """

    __slots__ = ("capacity", "flows", "latency", "load")

    def __init__(self, capacity: float = 1.0, latency: float = 0.0):
        # load: pieces of work that take it now, each by its part
        self.capacity, self.latency, self.load = capacity, latency, 0.0
        self.flows: dict[Flow, None] = {}  # which these are of, in order: ties are told apart alike


class Use(NamedTuple):
    """A side that a piece of work takes, and what part of what it transfers goes over it."""

    side: Side
    part: float = 1.0


class Flow:
    """Pieces of work that all go at the same `rate`, which changes: they take the same `sides` and have one `limit`.

    Each has `passed` so much since the flow was idle, at time `since`; a piece is done once that reaches its mark in
    `ends`. So however many there are, a change of rate is one event.
    """

    __slots__ = ("ends", "limit", "passed", "rate", "sides", "since", "version")

    def __init__(self, sides: list[Use], limit: float = inf):
        self.sides, self.limit = sides, limit
        self.ends: list[tuple[float, int, Callable[[float], None]]] = []  # a heap: mark, turn of arrival, what follows
        self.rate = self.passed = self.since = 0.0
        self.version = 0


class Sharing:
    """The events, and the flows among them."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Callable[[float], None]]] = []
        self.sequence = 0
        self.flows: dict[tuple[int, float], Flow] = {}
        self.unsettled: dict[Side, None] = {}  # where something has come or gone at this very time

    def _run(self) -> None:
        """All events, until there is none."""
        while self.heap:
            now, _, action = heapq.heappop(self.heap)
            action(now)

    def _at(self, time: float, action: Callable[[float], None]) -> None:
        self.sequence += 1
        heapq.heappush(self.heap, (time, self.sequence, action))

    def _begin(self, work: float, sides: list[Use], limit: float, now: float, done: Callable[[float], None]) -> None:
        """So much work begins; the very list `sides` is kept and given again, by whatever takes the same."""
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
        """A piece of work more in `flow`."""
        flow.passed = flow.passed + (now - flow.since) * flow.rate if flow.ends else 0.0
        flow.since = now
        self.sequence += 1
        heapq.heappush(flow.ends, (flow.passed + work, self.sequence, done))
        if not flow.sides:
            self._pace(flow, now)
            return
        for side, part in flow.sides:
            side.load += part
            side.flows[flow] = None
        self._share(flow, now)

    def _share(self, changed: Flow, now: float) -> None:
        """Something of `changed` has come or gone: what it met is shared anew, once for all that happens now."""
        if not self.unsettled:
            self._at(now, self._settle)
        self.unsettled.update((side, None) for side, _ in changed.sides)

    def _settle(self, now: float) -> None:
        """Give every flow the smallest of its shares of the sides it uses."""
        sides, self.unsettled = self.unsettled, {}
        for flow in dict.fromkeys(flow for side in sides for flow in side.flows):
            self._pace(flow, now)

    def _rate(self, flow: Flow) -> float:
        rate = flow.limit if flow.sides else min(flow.limit, 1.0)
        for side, _ in flow.sides:
            share = side.capacity / side.load
            if share < rate:
                rate = share
        return rate

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
        for side, part in flow.sides:
            side.load -= len(finished) * part
            if not flow.ends:
                del side.flows[flow]
                if not side.flows:
                    side.load = 0.0  # no rounding is carried on
        if flow.sides:
            self._share(flow, now)
        for done in finished:
            done(now)

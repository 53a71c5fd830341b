"""The event loop under interference: computation and messages slow one another down on the cores that they share.

While a rank computes and has a message in flight, its computation runs at 1/(computation factor) and the message at
1/(communication factor) of what it would get of its sides, exactly as long as both last. A message of several ranks is
slowed if any of them computes; a rank with several messages in flight computes as slowly as the worst of them makes
it. No other message gets what a slowed one leaves of its sides: whether cores could carry that is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from gradsync.engine.contention import Flow
from gradsync.engine.progress import Factors, Phase, Progress


class _Computation(Flow):
    __slots__ = ("rank",)

    def __init__(self, rank: int):
        super().__init__([])
        self.rank = rank


class _Message(Flow):
    """A single one, in flight from its start-up on; its `sides` are those of the stage that it is in."""

    __slots__ = ("factors", "ranks")

    def __init__(self, ranks: tuple[int, ...], factors: Factors):
        super().__init__([])
        self.ranks, self.factors = ranks, factors


class InterferenceProgress(Progress):
    """Runs a plan on a clock with `factors`."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.computing: dict[int, dict[Flow, None]] = defaultdict(dict)
        self.in_flight: dict[int, dict[_Message, None]] = defaultdict(dict)
        self.slowing: set[int] = set()  # ranks that compute: their messages go at the pace that follows from it

    def _work(self, rank: int, seconds: float, now: float, done: Callable[[float], None]) -> None:
        if seconds <= 0.0:
            self._at(now, done)
            return
        work = _Computation(rank)
        self.computing[rank][work] = None
        self._join(work, seconds, now, lambda time: self._worked(work, time, done))
        if rank not in self.slowing:
            self.slowing.add(rank)
            self._pace_all(self.in_flight[rank], now)

    def _worked(self, work: _Computation, now: float, done: Callable[[float], None]) -> None:
        del self.computing[work.rank][work]
        done(now)  # what follows at once finds the messages as they were
        if not self.computing[work.rank]:
            self.slowing.discard(work.rank)
            self._pace_all(self.in_flight[work.rank], now)

    def _transfer(
        self,
        op: Any,
        ranks: tuple[int, ...],
        phases: Sequence[Phase],
        latency: float,
        now: float,
        done: Callable[[float], None],
    ) -> None:
        cost = self.clock.message(op)

        def arrived(time: float) -> None:
            for rank in ranks:
                del self.in_flight[rank][message]
            done(time)
            for rank in ranks:
                self._pace_all(self.computing[rank], time)

        def sent(time: float, at: int = 0) -> None:
            if at == len(phases) or cost.transfer <= 0.0:
                arrived(time)
                return
            share, message.sides = phases[at]
            message.limit = cost.limit
            self._join(message, share * cost.transfer, time, lambda over: sent(over, at + 1))

        def started(time: float) -> None:
            message.sides = []  # a latency is shared with nobody
            self._join(message, cost.latency + latency, time, sent)

        message = _Message(ranks, self.clock.factors(op))
        for rank in ranks:
            self.in_flight[rank][message] = None
        if cost.host:
            message.sides = self._cores(ranks)
            self._join(message, cost.host, now, started)
        else:
            started(now)
        for rank in ranks:
            self._pace_all(self.computing[rank], now)

    def _rate(self, flow: Flow) -> float:
        if isinstance(flow, _Computation):
            return 1.0 / max((message.factors.computation for message in self.in_flight[flow.rank]), default=1.0)
        alone = super()._rate(flow)
        assert isinstance(flow, _Message)
        return alone / flow.factors.communication if not self.slowing.isdisjoint(flow.ranks) else alone

    def _pace_all(self, flows: dict[Any, None], now: float) -> None:
        for flow in list(flows):
            # the share of what has just come or gone is not known yet: it gets its pace together with its share
            if flow.rate and self._rate(flow) != flow.rate:
                self._pace(flow, now)

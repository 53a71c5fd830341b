"""Chooses the plan of a model while it trains (`plan="auto"`): profile, measure, plan, compare, keep the better one.

All that ranks do together here is done at a border: when the gradients of an iteration have been summed, so that no
gradient is summed partly by one plan and partly by another. All ranks are there then, whatever each of them does until
its next backward. Rank 0 plans and decides; an executor that is made compares the plan's digest over all ranks. When
the plan is chosen, `Attached` lets go of its pilot.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from gradsync.attachment import fit, trial
from gradsync.attachment import profile as profiles
from gradsync.attachment.auto import START, Auto, candidates
from gradsync.attachment.owned import Update, summing
from gradsync.attachment.planning import SMALLEST, from_rank_0
from gradsync.costs import fitted
from gradsync.errors import InputError
from gradsync.measure import allreduce
from gradsync.plan import Plan

if TYPE_CHECKING:
    from gradsync.attachment.handle import Attached

LOG = logging.getLogger("gradsync")


class Pilot:
    """Is told by `Attached` of what goes on; `history` is the one that users read."""

    def __init__(self, attached: Attached, options: Auto, all_reduce: str | None):
        self.attached, self.options, self.all_reduce = attached, options, all_reduce
        self.turn = 0  # iterations that have been sent
        self.profile: profiles.Profile | None = profiles.Profile(attached.groups.device)
        self.trial: trial.Trial | None = None
        self.contenders: list[Update] = [attached.update]
        self.wholes: list[Plan] = [attached.whole]
        attached.pilot = self
        self._tell("started", plan=START, messages=len(attached.plan.messages()))
        if attached.plan.ranks == 1:
            self._end("nothing is sent between ranks: there is one")

    def opened(self) -> None:
        """An iteration begins on this rank."""
        if self.profile is not None and self.turn >= self.options.discard:
            self.profile.opened()

    def forward_ended(self) -> None:
        """A forward has."""
        if self.profile is not None:
            self.profile.forward_ended()

    def ready(self, name: str) -> None:
        """A gradient that will be sent is there."""
        if self.profile is not None:
            self.profile.ready(name)

    def border(self) -> None:
        """All sums of an iteration are there; collective."""
        turn, self.turn = self.turn, self.turn + 1
        if self.trial is not None:
            contender = self.trial.border()
            if contender is None:
                self._judge(self.trial)
            else:
                self.attached.go_on_with(self.contenders[contender])
        elif self.profile is not None:
            self.profile.backward_ended()
            if turn == self.options.discard + self.options.warmup:
                self._plan(self.profile)

    def closed(self) -> None:
        """Training has ended before a plan was chosen."""
        self._tell("unfinished", why=f"training ended after {self.turn} iteration(s), before a plan was chosen")

    def _plan(self, profile: profiles.Profile) -> None:
        """Profile and network are known from now on; the best candidate is tried, unless it is what runs."""
        self.profile = None
        attached = self.attached
        ranks: list[Any] = [None] * attached.plan.ranks
        dist.all_gather_object(ranks, profile.seconds())
        held = attached.plan.holding("statistics")
        statistics = attached.plan.buffer[held].elements if held else 0
        workload = profiles.workload(type(attached.inner).__name__, attached.parameters, ranks, statistics)
        points = self._all_reduces()
        try:
            told, texts = from_rank_0(lambda: self._predicted(workload, points))
        except InputError as error:
            self._end(f"no plan could be made: {error}")
            return
        for event, details in told.items():
            self._tell(event, **details)
        plan = Plan.from_json(texts)
        if (plan.roles, plan.tensors) == (attached.whole.roles, attached.whole.tensors):
            self._end("the best plan is the one that runs")
            return
        plan = fit.with_statistics_of(plan, attached.inner)
        update = summing(plan, attached.parameters, attached.update.optimizer, attached.groups)
        self.contenders.append(update)
        self.wholes.append(plan)
        if self.options.trials:
            self.trial = trial.Trial(attached.groups.device, self.options.steps, self.options.trials)
            self.trial.border()  # the next iteration is of the starting plan
        else:
            self._end("it is predicted to be the fastest", 1)

    def _all_reduces(self) -> dict[int, list[float]]:
        """bytes -> seconds of each all-reduce; nothing is measured if that is given."""
        if self.all_reduce is not None:
            return {}
        total = sum(parameter.numel() * parameter.element_size() for parameter in self.attached.parameters.values())
        return allreduce.within(
            self.options.measure_seconds, SMALLEST, max(total, 2 * SMALLEST), self.attached.groups.device
        )

    def _predicted(self, workload: Any, points: dict[int, list[float]]) -> tuple[dict[str, dict[str, Any]], str]:
        """(what was measured and what is predicted, the best plan); on rank 0."""
        measured, described = None, self.all_reduce
        if points:
            means = [sum(seconds) / len(seconds) for seconds in points.values()]
            measured = fitted.fit(list(points), means, source="measured between the ranks")
            described = measured.describe()
        began = time.perf_counter()
        found = candidates(self.options.schedules, workload, self.all_reduce, measured)
        best = found[0]
        return {
            "measured": {
                "forward_seconds": workload.forward_seconds,
                "backward_seconds": workload.backward_seconds,
                "update_seconds": workload.update_seconds,
                "all_reduce": described,
                "largest_bytes": max(points, default=None),
            },
            "predicted": {
                "iteration_seconds": {each.scheme: each.seconds for each in found},
                "best": best.scheme,
                "messages": len(best.plan.messages()),
                "planning_seconds": time.perf_counter() - began,
            },
        }, best.plan.to_json()

    def _judge(self, over: trial.Trial) -> None:
        """The better of the two goes on."""
        ranks: list[Any] = [None] * self.attached.plan.ranks
        dist.all_gather_object(ranks, over.seconds())
        judged = from_rank_0(lambda: trial.verdict(ranks)._asdict())
        self._tell("compared", **judged)
        low, high = judged["low"], judged["high"]
        apart = low is not None and not low <= 1 <= high
        why = "its iterations were shorter" if apart else "its iterations were shorter, but the two are not told apart"
        self._end(why, int(judged["ratio"] < 1), judged)

    def _end(self, why: str, chosen: int = 0, judged: dict[str, Any] | None = None) -> None:
        attached = self.attached
        attached.go_on_with(self.contenders[chosen])
        attached.whole, attached.pilot = self.wholes[chosen], None
        messages = len(attached.plan.messages())
        self._tell("chosen", plan=attached.plan.name, messages=messages, digest=attached.plan.digest, why=why)
        if attached.rank == 0:
            times = "old {old_seconds:.6f} s, new {new_seconds:.6f} s, ratio {ratio:.4f}; " if judged else ""
            times = times.format(**judged) if judged else ""
            LOG.info("plan auto: %r, %d message(s): %s%s", attached.plan.name, messages, times, why)

    def _tell(self, event: str, **details: Any) -> None:
        self.attached.history.append({"event": event, "iteration": self.turn, **details})

"""A contender of several phases: at a switch, another plan takes over parameters and what the optimizer keeps.

What the plan before has not sent, its residual, is carried into the first gradient of the next plan, or flushed by a
turn of the next plan that computes nothing (`plan/phases.py`). A flush applies the mean residual as a gradient, at the
learning rate of the iteration that follows, and counts as no iteration: neither samples nor the schedule of the rate
move on, nor does what an optimizer counts for a bias correction.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.distributed as dist

from gradsync.errors import RunError
from gradsync.learning_rates import UNCHANGED, LearningRate
from gradsync.plan import Need, Plan
from gradsync.plan.phases import PhasedPlan
from gradsync.runtime.compute import Forward, Sample
from gradsync.runtime.contenders import Contender, Planned
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.step import Step


class Phased(Contender):
    """Plans that follow one another on one model; `switches` are the first turns of all but the first."""

    def __init__(
        self,
        phased: PhasedPlan,
        switches: tuple[int, ...],
        forward: Forward,
        sample: Sample,
        groups: Groups,
        pool: Pool,
        rate: LearningRate = UNCHANGED,
    ):
        self.name, self.phased, self.first = phased.name, phased, (0, *switches)
        self.forward, self.model = forward, forward.model
        self._made_with = forward, sample, groups, pool, rate
        self.number = 0  # of the phase
        self.now = self._made()
        self._earlier: list[float] = []  # losses of phases that are over
        self._took: list[tuple[int, float]] = []  # of switches, their turns and seconds

    def _made(self) -> Planned:
        return Planned(self.phased.plans[self.number], *self._made_with)

    @property
    def plan(self) -> Plan:
        """That of the phase."""
        return self.now.plan

    @property
    def turn(self) -> int:  # type: ignore[override]
        """The next turn."""
        return self.now.turn

    @property
    def losses(self) -> list[float]:  # type: ignore[override]
        """Losses of the turns since it was made."""
        return [*self._earlier, *self.now.losses]

    def run(self, turns: int) -> list[float]:
        """Train so many turns; a phase that begins with one of them takes over first. Only its spans are kept."""
        until, ends = self.turn + turns, list[float]()
        while self.turn < until:
            later = self.first[self.number + 1 :]
            if later and self.turn == later[0]:
                self._switch()
                later = later[1:]
            ends += self.now.run(min(until, *later[:1], until) - self.turn)
        return ends

    def _switch(self) -> None:
        """Let the next phase take over; collective."""
        start, before = time.perf_counter(), self.now
        places: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(places, (self.number, before.turn))
        if len(set(places)) > 1:
            raise RunError(f"{self.name!r}: ranks are in other phases or turns: {sorted(set(places))}")
        alike, own = before.state()
        held = before.plan.holding("residual") or ""
        residual = own.pop(held, None)
        self._next()
        self.now.restore(alike, own)
        if residual is not None:
            self.now.executor.carried = residual
            if self.phased.residual == "flush":
                self.now.executor.run(1, _nothing, record=False)
                self.now.executor.resume(before.turn)
        self._took.append((before.turn, time.perf_counter() - start))

    def _next(self) -> None:
        """Make the next phase, on the model of the one before."""
        self.now.close()
        self._earlier += self.now.losses
        self.number += 1
        self.now = self._made()

    def taken(self) -> list[tuple[int, float]]:
        """The turn and the seconds of each switch since the last call."""
        taken, self._took = self._took, []
        return taken

    def details(self) -> dict[str, Any]:
        """What settings tell of it: its plan as a whole, and the scheme, plan and first iteration of each phase."""
        return {
            "plan": self.phased.digest,
            "scheme": self.name,
            "residual": self.phased.residual,
            "phases": [
                {"scheme": plan.name, "plan": plan.digest, "first_iteration": first}
                for plan, first in zip(self.phased.plans, self.first, strict=True)
            ],
        }

    def parameters(self) -> dict[str, torch.Tensor]:
        """Views of the flat buffer of the phase."""
        return self.now.parameters()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """That of the phase, and its number. At the turn of a switch, the phase before has it still."""
        alike, own = self.now.state()
        return {"phase": self.number, "of_phase": alike}, own

    def restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """Go on from a state, in its phase."""
        while self.number < alike["phase"]:
            self._next()
        self.now.restore(alike["of_phase"], own)

    def close(self) -> None:
        """Remove the hooks."""
        self.now.close()


def executing(contender: Contender) -> Planned | None:
    """What executes a plan for the contender; None if it has none."""
    if isinstance(contender, Phased):
        return contender.now
    return contender if isinstance(contender, Planned) else None


def _nothing(number: int, step: Step) -> None:
    """A pass that computes nothing: all of its gradients are zero."""
    for op in step.ops:
        if isinstance(op, Need):
            step.need(op.layer)

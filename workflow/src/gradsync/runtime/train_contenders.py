"""The contenders of a launch, made anew for each seed: plans, peers, and the references beside them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gradsync import optimizers
from gradsync.configuration.peers import Peer
from gradsync.configuration.training import Training
from gradsync.learning_rates import UNCHANGED, LearningRate
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.phases import PhasedPlan
from gradsync.runtime import data, replay
from gradsync.runtime.compute import Forward, Loss
from gradsync.runtime.contenders import Contender, NoCommunication, OneRank, Planned, silent
from gradsync.runtime.devices import Device
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.peers import make
from gradsync.runtime.peers.ddp import StockDDP, best_bucket_mib
from gradsync.runtime.phased import Phased


@dataclass
class Contenders:
    """What makes them. The size of buckets that a peer wants as the best is found once in a launch."""

    plans: list[Plan]
    peers: list[Peer]
    options: Training
    loss: Loss
    rank: int
    device: Device
    groups: Groups
    pool: Pool
    say: Callable[[str], None]
    phased: Sequence[PhasedPlan] = ()
    bucket_mib: float | None = None
    rate: LearningRate = UNCHANGED
    switches: dict[str, tuple[int, ...]] = field(default_factory=dict)  # of phased plans, of the seed at hand

    def of_seed(self, first: torch.nn.Module, feed: data.StagedFeed, seed: int) -> Iterator[Contender]:
        """One after the other, each with a copy of the model `first`."""

        def forward() -> Forward:
            return self._forward(copy.deepcopy(first), seed)

        for plan in self.plans:
            yield Planned(plan, forward(), feed, self.groups, self.pool, self.rate)
        for phased in self.phased:
            yield Phased(phased, self.switches[phased.name], forward(), feed, self.groups, self.pool, self.rate)
        by_name = {plan.name: plan for plan in self.plans}
        for peer in self.peers:
            sized = self._sized(peer, first, feed, seed)
            yield make(sized, forward(), feed, by_name, self.groups, **self.steps())
        if self.options.references and self.plans:
            reference = by_name.get(self.options.reference, self.plans[0])
            alone = NoCommunication(silent(reference), forward(), feed, self.groups, self.pool, self.rate)
            yield alone
            yield OneRank(alone)

    def _forward(self, model: torch.nn.Module, seed: int) -> Forward:
        return Forward(model.to(self.device.torch_device), self.loss, self.rank, seed, self.options.precision)

    @property
    def optimizer(self) -> Optimizer:
        """What peers apply gradients with: that of the first plan, if there is one; else that of the options."""
        plans = [*self.plans, *(plan for phased in self.phased for plan in phased.plans)]
        planned = optimizers.of(plans[0]) if plans else None
        return planned or optimizers.taken(self.options.optimizer, self.options)

    def steps(self) -> dict[str, Any]:
        """What a step of a peer does."""
        return {
            "optimizer": self.optimizer,
            "rate": self.rate,
            "statistics": self.options.statistics == "broadcast",
            "accumulate": self.options.accumulate,
            "clip_norm": self.options.clip_norm,
        }

    def _sized(self, peer: Peer, first: torch.nn.Module, feed: data.StagedFeed, seed: int) -> Peer:
        """The peer with a size of its buckets."""
        if peer.bucket_mib != "best":
            return peer
        if self.bucket_mib is None:

            def bucketed(model: torch.nn.Module, size: float) -> StockDDP:
                candidate = peer.model_copy(update={"bucket_mib": size})
                return StockDDP(candidate, self._forward(model, seed), feed, {}, self.groups, **self.steps())

            self.bucket_mib = best_bucket_mib(first, bucketed, steady=replay.is_replay(self.options.model))
            self.say(f"{peer.name}: buckets of {self.bucket_mib:g} MiB are the fastest")
        return peer.model_copy(update={"bucket_mib": self.bucket_mib})

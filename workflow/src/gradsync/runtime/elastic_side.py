"""One rank's side of a training by one plan: its model, its executor, its samples, and what it tells of a segment."""

from __future__ import annotations

import copy
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.distributed as dist

from gradsync.engine.masters import kept
from gradsync.plan import PASSING, Plan
from gradsync.plan.trace import Span
from gradsync.runtime import data
from gradsync.runtime.alignment import offsets
from gradsync.runtime.compute import Forward, ModelCompute, begin_centre, bind, bind_statistics
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.lost_updates import Watching, unlocked

if TYPE_CHECKING:
    from gradsync.runtime.elastic import Launch


class Report(NamedTuple):
    """What a rank tells rank 0 of a segment, on rank 0's clock."""

    start: float
    end: float
    losses: list[float]
    spans: list[Span]
    samples: list[tuple[float, float]]


class Side:
    """One rank's side of a training by a plan: its model, its executor and, if it works, its samples."""

    def __init__(self, launch: Launch, plan: Plan, first: torch.nn.Module, feed: data.Feed, seed: int):
        self.rank, self.feed, self.kept = launch.rank, feed, kept(plan)
        self.plan, self.device = plan, launch.device
        self.forward = Forward(
            copy.deepcopy(first).to(self.device.torch_device), launch.spec.loss, self.rank, seed, "float32"
        )
        watched = unlocked(plan)
        self.executor = Watching(plan, self.rank, launch.groups) if watched else prepare(plan, self.rank, launch.groups)
        buffers = self.executor.buffers
        bind(self.forward.model, plan, buffers[plan.holding("parameter") or ""])
        begin_centre(plan, buffers)
        if name := plan.holding("statistics"):
            bind_statistics(self.forward.model, buffers[name])
        self.samples: list[tuple[float, float]] = []
        self.compute = ModelCompute(
            *(self.forward, self._sample),
            name=plan.name,
            queued=self.device.queued,
            passes=plan.passes,
            iterations=plan.iterations,
            least_seconds=launch.options.compute_seconds or 0.0,
        )

    def _sample(self, number: int) -> data.Shard:
        start = time.perf_counter()
        batch = self.feed(number)
        self.samples.append((start, time.perf_counter()))
        return batch

    def run(self, turns: int) -> list[Report]:
        """Run a segment; on rank 0 the reports of all ranks, else none. Collective."""
        executor = self.executor
        executor.spans.clear()
        self.samples.clear()
        seen = len(self.compute.losses)
        if isinstance(executor, Watching):
            executor.begin()
        dist.barrier()
        start = time.perf_counter()
        executor.run(turns, self.compute)
        self.compute.settle()
        end = time.perf_counter()
        ahead = offsets()[self.rank].seconds
        spans = [span._replace(start=span.start + ahead, end=span.end + ahead) for span in executor.spans]
        samples = [(begun + ahead, over + ahead) for begun, over in self.samples]
        report = Report(start + ahead, end + ahead, self.compute.losses[seen:], spans, samples)
        reports: list[Any] | None = [None] * self.plan.ranks if self.rank == 0 else None
        dist.gather_object(report, reports)
        return reports or []

    def lost(self) -> tuple[float, float] | None:
        """What additions without a lock lost in the segment, and all that they added; None with one. Collective."""
        return self.executor.lost() if isinstance(self.executor, Watching) else None

    def take_over(self, before: Side, turn: int) -> None:
        """Begin at a turn, with the buffers of equal name and role that another plan leaves, and its model's."""
        for buffer in self.plan.buffers:
            other = before.plan.buffer.get(buffer.name)
            if other is not None and other.role == buffer.role and buffer.role not in PASSING:
                self.executor.buffers[buffer.name].copy_(before.executor.buffers[buffer.name])
        begin_centre(self.plan, self.executor.buffers)
        for target, source in zip(self.forward.model.buffers(), before.forward.model.buffers(), strict=True):
            target.copy_(source)
        self.executor.resume(turn)

    def state(self, phase: int) -> dict[str, Any]:
        """What a checkpoint holds of this rank; `phase`: the number of the plan."""
        buffers = self.executor.buffers
        kept_buffers = {b.name: buffers[b.name] for b in self.plan.buffers if b.role not in PASSING}
        return {
            "phase": phase,
            "turn": self.executor.turn,
            "buffers": kept_buffers,
            "model": list(self.forward.model.buffers()),
        }

    def restore(self, own: dict[str, Any]) -> None:
        """Go on from a state."""
        for name, value in own["buffers"].items():
            self.executor.buffers[name].copy_(value)
        for buffer, value in zip(self.forward.model.buffers(), own["model"], strict=True):
            buffer.copy_(value)
        self.executor.resume(own["turn"])

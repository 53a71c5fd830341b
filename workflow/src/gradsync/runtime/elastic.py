"""Train by one plan whose ranks may have different roles: masters, workers, memory that they share.

Samples are dealt to the workers alone. A training runs in segments of iterations. Between two of them the ranks meet,
and rank 0 tests the model that is trained (`engine/masters.py`); this time does not count. A worker goes on with what
it had, so that a segment does not make anything fresh. An iteration is one gradient of each worker; a turn of a plan
has several if workers go on by themselves for a period, and a segment or a training ends with a whole one.

A training may begin by another plan and switch after so many iterations, as post-local SGD does. Buffers of equal name
and role are carried over, and a centre begins with the parameters.
"""

from __future__ import annotations

import copy
import hashlib
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync.configuration.elastic import Elastic
from gradsync.engine import breakdown
from gradsync.engine.masters import workers
from gradsync.engine.staleness import Arrivals
from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.runtime import data, devices, memory, models
from gradsync.runtime.binding import parts_of
from gradsync.runtime.checkpoint import Checkpoints
from gradsync.runtime.compute import bind
from gradsync.runtime.conformance import Held, exactness
from gradsync.runtime.elastic_results import Course, Results, recorded
from gradsync.runtime.elastic_side import Report, Side
from gradsync.runtime.group import Groups
from gradsync.runtime.hosts import machines
from gradsync.runtime.sessions import Sessions

TRACED_TURNS = 3


def train(
    plan: Plan,
    options: Elastic,
    folder: Path,
    rank: int,
    ranks: int,
    testbed: dict[str, Any] | None = None,
    before: Plan | None = None,
) -> None:
    """Run in every rank; rank 0 writes results below the folder. `testbed` describes the one that the ranks run on.

    With a plan `before`, the first iterations (`options.switch`) are by that. An interrupted run goes on from its last
    checkpoint. Raises RunError if a plan does not compute what the oracle says, or a loss or the trained model is not
    finite.
    """
    Launch(plan, options, folder, rank, ranks, testbed, before).run()


class Launch:
    """The launch in one rank, over all of its seeds."""

    def __init__(
        self,
        plan: Plan,
        options: Elastic,
        folder: Path,
        rank: int,
        ranks: int,
        testbed: dict[str, Any] | None,
        before: Plan | None,
    ):
        self.plan, self.options, self.folder, self.rank, self.ranks = plan, options, folder, rank, ranks
        self.before, self.plans = before, [plan] if before is None else [before, plan]
        self.workers = workers(plan)
        self.spec, self.device = models.get(options.model), devices.pick(options.device)
        self.groups = Groups(self.device)
        self.course = Course()
        self.seeds = (*options.seeds, *options.seeds[:1] * options.again)
        self.results = Results(plan, options, testbed, self.device, machines(), before)
        digests = [each.digest for each in self.plans]
        key = json.dumps([recorded(options, testbed), digests, torch.__version__], sort_keys=True)
        self.checkpoints = Checkpoints(
            folder / "checkpoint", hashlib.sha256(key.encode()).hexdigest(), rank, options.checkpoint_seconds
        )

    def run(self) -> None:
        """Train every seed from where a checkpoint left off, and write the results."""
        loaded, own = self.checkpoints.load(), None
        if loaded is not None:
            self.course, own = Course.restored(loaded[0]["course"]), loaded[1]
            seed = self.seeds[self.course.seed]
            self._say(f"going on from the checkpoint at iteration {self.course.turns} of seed {seed}")
        self.sessions = Sessions({**self.results.machines, **self.device.provenance()}, self.course.sessions)
        for index in range(self.course.seed, len(self.seeds)):
            if own is None:
                self.course.begin(index)
            self._train_seed(self.seeds[index], own)
            own = None
        self.groups.close()
        self.results.notes += self.sessions.notes()
        self.results.machines |= self.sessions.provenance()
        if self.rank == 0:
            self.results.save(self.course, self.folder)
        self.checkpoints.clear()

    @property
    def _again(self) -> bool:
        """Whether the first seed is trained again, of which the outcome alone is recorded."""
        return self.course.seed >= len(self.options.seeds)

    def _say(self, text: str) -> None:
        if self.rank == 0:
            print(text, file=sys.stderr, flush=True)

    def _train_seed(self, seed: int, own: dict[str, Any] | None) -> None:
        begun = time.perf_counter()
        loaded = data.load(
            self.options.data,
            model=self.options.model,
            size=self.options.size,
            batch=self.options.batch,
            ranks=len(self.workers),
            seed=seed,
            folder=self.options.data_folder,
        )
        read = time.perf_counter()
        first = models.build(self.options.model, seed)
        built = time.perf_counter()
        self._refuse_memory(first, loaded)
        if self.options.conformance and not self.course.conformance:
            self._hold_against_oracle(first, loaded, seed)
        building = time.perf_counter()
        place = self.workers.index(self.rank) if self.rank in self.workers else 0
        with data.Feed(loaded, place, device=self.device) as feed:
            side = Side(self, self.plans[0 if own is None else own["phase"]], first, feed, seed)
            if own is not None:
                side.restore(own)
            dist.barrier()
            if own is None and not self._again:
                self.course.begin_seed(read - begun, built - read + time.perf_counter() - building)
            self._train_segments(side, loaded, first, seed)

    def _refuse_memory(self, first: torch.nn.Module, loaded: data.Data) -> None:
        """Raises InputError if the launch needs more memory than there is."""
        if parts_of(self.plan):
            memory.refuse_copies(self.plan, loaded.training)
        need = memory.needed(
            sum(parameter.numel() for parameter in first.parameters()),
            self.plans,
            0,
            references=False,
            conformance=0 if self.course.conformance else _periods(self.options.conformance, self.plan),
            width=exactness(first, self.plans).itemsize,
        )
        memory.refuse(self.options.model, need, self.rank, self.device)

    def _hold_against_oracle(self, first: torch.nn.Module, loaded: data.Data, seed: int) -> None:
        """The order of arrivals at masters is recorded and replayed; that of additions to memory can't be."""
        if any(buffer.shared for buffer in self.plan.buffers):
            self.course.conformance = {"oracle": "not asked: ranks share memory, where no order is recorded"}
            return
        for plan in self.plans:
            self._say(f"conformance: {plan.name}")
            turns = _periods(self.options.conformance, plan)
            held = Held(
                *(loaded, first, self.spec.loss, seed, self.rank, self.groups, turns, [plan]), places=self.workers
            )
            kind = "before_" if plan is self.before else ""
            self.course.conformance |= {f"{kind}{key}": value for key, value in held.against_oracle(plan).items()}

    def _train_segments(self, side: Side, loaded: data.Data, first: torch.nn.Module, seed: int) -> None:
        self.results.turns_an_epoch = loaded.batches.turns_an_epoch
        total = self.options.turns(loaded.batches.turns_an_epoch)
        arrivals = Arrivals(self.plan)
        arrivals.updates.update(dict(self.course.updates))
        arrivals.read.update({(place, source): at for place, source, at in self.course.read})
        tested = copy.deepcopy(first).to(self.device.torch_device)
        flat = torch.zeros(self.plan.elements, device=self.device.torch_device)
        bind(tested, self.plan, flat)
        begun = time.monotonic(), self.course.turns
        while self.course.turns < total:
            if side.plan is self.before and self.course.turns >= self.options.switch:
                side = self._switched(side, first, seed)
            until = self.options.switch if side.plan is self.before else total
            turns = _periods(min(self.options.segment, until - self.course.turns), side.plan)
            reports = side.run(turns)
            lost = side.lost()
            self._gather_trained(side, tested, flat)
            self.course.turns += turns * side.plan.iterations
            if reports:  # on rank 0
                if not torch.isfinite(flat).all():
                    raise RunError(
                        f"{side.plan.name!r}: {side.kept.buffer} of rank {side.kept.ranks[0]} is not finite after "
                        f"iteration {self.course.turns} of seed {seed}: lower the learning rate"
                    )
                if self._again:
                    self._say(f"seed {seed} again, iteration {self.course.turns}/{total}")
                else:
                    accuracy = data.accuracy(tested, loaded.test, spec=self.spec) if loaded.test is not None else None
                    self._record(side.plan, reports, arrivals, seed, turns, accuracy, lost)
                    self.results.save_curve(self.course, self.folder)
                    self._say(self._progress(seed, total, begun))
            dist.barrier()
            if self._reached(seed):
                break
            if self.course.turns < total and self.checkpoints.due():
                self.course.sessions = self.sessions.so_far()
                self.course.updates = list(arrivals.updates.items())
                self.course.read = [(*key, at) for key, at in arrivals.read.items()]
                self.checkpoints.save({"course": asdict(self.course)}, side.state(self.plans.index(side.plan)))
        side.compute.close()
        if self.rank == 0:
            digest = hashlib.sha256(flat.cpu().numpy().tobytes()).hexdigest()
            if self._again:
                self.course.again.append(digest)
                return
            self.course.finals[str(seed)] = digest
            if self.options.keep:
                self.results.save_parameters(self.folder, seed, flat.cpu().numpy())

    def _reached(self, seed: int) -> bool:
        """Whether the training of a seed ends early, since it has reached all targets. Collective."""
        if not self.options.stop_at_target:
            return False
        flag = torch.tensor([self.course.reached_all(seed, self.options.target_errors)], dtype=torch.uint8)
        dist.broadcast(flag, 0)
        return bool(flag)

    def _switched(self, before: Side, first: torch.nn.Module, seed: int) -> Side:
        """Go on by the plan, with what was trained before it: parameters, momentum, statistics."""
        self._say(f"iteration {self.course.turns}: from plan {before.plan.name!r} to {self.plan.name!r}")
        before.compute.close()
        side = Side(self, self.plan, first, before.feed, seed)
        side.take_over(before, self.course.turns // self.plan.iterations)
        dist.barrier()
        return side

    def _record(
        self,
        plan: Plan,
        reports: list[Report],
        arrivals: Arrivals,
        seed: int,
        turns: int,
        accuracy: float | None,
        lost: tuple[float, float] | None,
    ) -> None:
        """Take what the ranks tell of a segment of so many turns of a plan, and the test after it, on rank 0."""
        spans = [span for report in reports for span in report.spans]
        seconds = max(report.end for report in reports) - min(report.start for report in reports)
        loss = float(np.mean([np.mean(reports[rank].losses) for rank in self.workers]))
        self.course.segment(seed, turns * plan.iterations, seconds, loss, accuracy)
        self.course.arrivals += [(seed, *arrival) for arrival in arrivals.take(spans)]
        windows = {rank: (reports[rank].start, reports[rank].end) for rank in self.workers}
        samples = {rank: reports[rank].samples for rank in self.workers}
        self.course.add_parts(seed, breakdown.seconds(plan, spans, windows, samples))
        self.course.slowest += breakdown.slowest(plan, spans)
        if lost is not None:
            self.course.lost, self.course.added = self.course.lost + lost[0], self.course.added + lost[1]
        since = min(
            span.start
            for span in spans
            if span.rank in self.workers
            and span.turn >= self.course.turns // plan.iterations - min(TRACED_TURNS, turns)
        )
        self.results.spans = [span for span in spans if span.start >= since]

    def _progress(self, seed: int, total: int, begun: tuple[float, int]) -> str:
        since, at = begun
        left = (time.monotonic() - since) / (self.course.turns - at) * (total - self.course.turns)
        _, _, seconds, _, loss, accuracy = self.course.points[-1]
        tested = "" if accuracy is None else f", test error {1 - accuracy:.4f}"
        return (
            f"seed {seed}, iteration {self.course.turns}/{total}, {seconds:.1f} s trained, loss {loss:.4f}{tested}, "
            f"{left:.0f} s left"
        )

    def _gather_trained(self, side: Side, tested: torch.nn.Module, flat: torch.Tensor) -> None:
        """Put the model that is trained into `flat`, and the mean statistics of the workers into `tested`. Collective.

        All ranks get them.
        """
        value = side.executor.buffers[side.kept.buffer]
        if side.plan.buffer[side.kept.buffer].shared:
            flat.copy_(value)
        else:
            self._mean(flat, value, side.kept.ranks)
        for target, source in zip(tested.buffers(), side.forward.model.buffers(), strict=True):
            if target.is_floating_point():
                self._mean(target, source, self.workers)

    def _mean(self, target: torch.Tensor, value: torch.Tensor, holders: tuple[int, ...]) -> None:
        target.zero_()
        if self.rank in holders:
            target.copy_(value).div_(len(holders))
        dist.all_reduce(target)


def _periods(iterations: int, plan: Plan) -> int:
    """The turns of a plan that have so many iterations at the least."""
    return -(-iterations // plan.iterations)

"""How fast an attached plan trains a model in a loop of one's own, against stock DDP; a program of two ranks.

Targets, on two ranks of this machine: `gradsync.attach` takes no longer than DDP with the plan's own buckets, and a
plan that `plan="auto"` has chosen no longer than the same plan attached directly (median of at least 20 pairs at most
1.00, or an interval of 95 % that holds 1.00). All contenders train copies of one model on the same samples, in turn
(A B B A), in one launch. They have to end with the same parameters, bit for bit.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from gradsync.attachment import Attached, Auto, as_ddp, attach
from gradsync.benchmarks import rows
from gradsync.benchmarks.rows import Row
from gradsync.errors import RunError
from gradsync.files.results import write_whole
from gradsync.runtime import data, models
from gradsync.runtime.group import process_group
from gradsync.runtime.launch import launch
from gradsync.statistics.intervals import median_interval

RANKS = 2
PAIRS = 24
TARGET = 1.0
BLOCK_SECONDS, MOST_STEPS = 0.25, 32  # of a block
WARM_UP = 3  # steps; DDP has a plan's buckets from the second one on
LR, MOMENTUM = 0.001, 0.9
BATCHES = 4  # that take turns


class Subject(NamedTuple):
    """A model, the samples of a rank and step, and pixels per side (None: the model's own)."""

    model: str
    batch: int
    size: int | None = None


SUBJECTS = (Subject("lenet5", 16), Subject("resnet50", 4, 64))
SCHEMES = ("fixed_buckets", "mgwfbp")


def measure(folder: Path, config: str) -> Row:
    """Rows of all models, and whether all targets were met; ranks write to `folder`."""
    launch(["benchmark", "attach", "--config", config, "--results", str(folder)], RANKS)
    return rows.result(json.loads((folder / "attach.json").read_text()))


def on_a_rank(folder: Path) -> None:
    """What each of the ranks runs; rank 0 writes the rows."""
    with process_group() as (rank, ranks):
        measured = [row for subject in SUBJECTS for row in of_model(subject, rank, ranks)]
        if rank == 0:
            write_whole(folder / "attach.json", json.dumps(measured))


def of_model(subject: Subject, rank: int, ranks: int, pairs: int = PAIRS) -> Iterator[Row]:
    """A row per scheme, attached against DDP with its buckets, and one of `plan="auto"`. Collective.

    Raises RunError if two of a pair end with other parameters.
    """
    loaded = data.load("synthetic", model=subject.model, size=subject.size, batch=subject.batch, ranks=ranks, seed=0)
    samples = [data.shard(loaded, turn, rank) for turn in range(min(BATCHES, loaded.batches.turns_an_epoch))]
    start = models.build(subject.model, 0)
    for scheme in SCHEMES:
        with Loop(start, subject.model, samples) as ours, Loop(start, subject.model, samples) as stock:
            plan = ours.attach(scheme, inputs=samples[0][0]).whole
            stock.module = as_ddp(stock.model, plan)
            yield _row(f"{subject.model}, {ranks} ranks, {scheme}: attach / DDP with its buckets", ours, stock, pairs)
    with Loop(start, subject.model, samples) as chosen, Loop(start, subject.model, samples) as direct:
        attached = chosen.attach(Auto())
        while attached.pilot is not None:
            chosen.step()
        plan = attached.whole
        direct.attach(plan)
        for _ in range(chosen.steps):
            direct.step()
        task = f'{subject.model}, {ranks} ranks, {plan.name}: plan="auto" that has chosen / attached directly'
        yield _row(task, chosen, direct, pairs)


class Loop:
    """A training loop as users write it, of a copy of a model; leaving the `with` block takes its plan off."""

    def __init__(self, start: nn.Module, name: str, samples: Sequence[tuple[Any, Any]]):
        self.model = copy.deepcopy(start)
        self.module: nn.Module = self.model  # what forward is called of
        self.loss: Callable[..., torch.Tensor] = models.get(name).loss
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=LR, momentum=MOMENTUM)
        self.samples, self.steps = samples, 0
        self.attached: Attached | None = None

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        if self.attached is not None:
            self.attached.close()

    def attach(self, plan: Any, **how: Any) -> Attached:
        """Attach the model to a plan."""
        self.attached = attach(self.model, self.optimizer, plan, **how)
        return self.attached

    def step(self) -> None:
        """One iteration."""
        inputs, labels = self.samples[self.steps % len(self.samples)]
        self.optimizer.zero_grad()
        self.loss(self.module(inputs), labels).backward()
        self.optimizer.step()
        self.steps += 1

    def block(self, steps: int) -> float:
        """Seconds of an iteration on this rank, of as many in a row."""
        dist.barrier()
        begun = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - begun) / steps


def _row(task: str, ours: Loop, other: Loop, pairs: int) -> Row:
    both = (ours, other)
    for loop in both:
        loop.block(WARM_UP)
    typical = torch.tensor([loop.block(2) for loop in both])
    dist.all_reduce(typical, op=dist.ReduceOp.MAX)
    steps = int(np.clip(BLOCK_SECONDS / float(typical.max()), 1, MOST_STEPS))
    seconds = torch.zeros(2, pairs, dtype=torch.float64)
    for pair in range(pairs):
        for number in (0, 1) if pair % 2 == 0 else (1, 0):
            seconds[number, pair] = both[number].block(steps)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)  # the slower rank's
    for (name, one), another in zip(ours.model.named_parameters(), other.model.parameters(), strict=True):
        if not torch.equal(one, another):
            raise RunError(f"benchmark: {task}: {name!r} is not the same after {ours.steps} iterations")
    interval = median_interval((seconds[0] / seconds[1]).numpy())
    low, middle, _ = interval
    return {
        "task": task,
        **rows.ratio(interval),
        "pairs": pairs,
        "steps_a_block": steps,
        "seconds": float(seconds[0].median()),
        "other_seconds": float(seconds[1].median()),
        "conformance": f"parameters are equal bit for bit after {ours.steps} iterations",
        "target_ratio": TARGET,
        "met": pairs >= 20 and (middle <= TARGET or (low is not None and low <= TARGET)),
    }

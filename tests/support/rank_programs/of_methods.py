"""Execution of methods of their own: elastic averaging, parameter servers, shared memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import methods
import tiny_plans as tiny
from gradsync import updates
from gradsync.plan import COMPUTE, Plan
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.step import Step
from rank_programs.of_tiny_plans import Ended, compute_with

METHOD_TURNS = 6
HOGWILD = ("hogwild_sgd", "hogwild_easgd")
PAUSE_SECONDS = 1e-4


def method_cases(ranks: int) -> Iterator[tuple[str, str, Plan]]:
    """(name, method, plan) of every method; those that share memory with and without a lock, and with a root's tree."""
    for method in updates.methods():
        if method in HOGWILD:
            for locked in (True, False):
                yield (
                    f"{method}, {'locked' if locked else 'unlocked'}",
                    method,
                    methods.planned(method, ranks, locked=locked),
                )
        else:
            yield method, method, methods.planned(method, ranks)
        if updates.rooted(method):
            yield f"{method}, tree", method, methods.planned(method, ranks, algorithm="binary_tree")


def all_methods(rank: int, ranks: int) -> dict[str, list[Ended]]:
    """Every method executed twice."""
    groups = Groups()
    ended: dict[str, list[Ended]] = {}
    for name, method, plan in method_cases(ranks):
        for _ in range(2):
            executor = Executor(plan, rank, groups)
            for buffer in ("parameter", "centre"):
                if buffer in executor.buffers:
                    executor.buffers[buffer].copy_(torch.from_numpy(tiny.start(methods.ELEMENTS)))
            dist.barrier()  # shared buffers have their first values
            compute = compute_with(executor, tiny.pull)
            if method in HOGWILD:
                compute = _in_turn(executor, ranks, compute)
            executor.run(METHOD_TURNS, compute)
            if method in HOGWILD:
                _pass_on(rank, ranks)
                if rank == 0:
                    _take_over(rank, ranks)
            dist.barrier()
            buffers = {key: value.numpy().copy() for key, value in executor.buffers.items()}
            ended.setdefault(name, []).append(Ended(buffers, executor.trace()))
    groups.close()
    return ended


def averaged_by_torch(rank: int, ranks: int) -> np.ndarray:
    """The parameters after as many local steps by torch's own local SGD."""
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    parameter = torch.nn.Parameter(torch.from_numpy(tiny.start(methods.ELEMENTS)))
    # it counts from 0, and averages after the steps warmup_steps, warmup_steps + period, ..
    averager = PeriodicModelAverager(period=methods.PERIOD, warmup_steps=methods.PERIOD - 1)
    steps = torch.optim.SGD([parameter], lr=methods.LR, momentum=methods.MOMENTUM)
    optimizer = PostLocalSGDOptimizer(steps, averager)
    for number in range(METHOD_TURNS * methods.PERIOD):
        parameter.grad = torch.from_numpy(tiny.pull(rank, number, parameter.detach().numpy()))
        optimizer.step()
    return parameter.detach().numpy().copy()


def _in_turn(executor: Executor, ranks: int, compute: Any) -> Any:
    """Each rank ends its iteration, and shares memory for its next one, while the others compute or wait."""

    lanes_ahead = executor.lane_of["push"] != COMPUTE

    def one_at_a_time(turn: int, step: Step) -> None:
        while executor.finished["push"] < (turn if lanes_ahead else turn - 1):
            time.sleep(PAUSE_SECONDS)
        if turn:
            _pass_on(executor.rank, ranks)
        else:
            dist.barrier()  # all have read the first values
        if turn or executor.rank:
            _take_over(executor.rank, ranks)
        compute(turn, step)

    return one_at_a_time


def _pass_on(rank: int, ranks: int) -> None:
    if ranks > 1:
        dist.send(torch.zeros(1), (rank + 1) % ranks)


def _take_over(rank: int, ranks: int) -> None:
    if ranks > 1:
        dist.recv(torch.zeros(1), (rank - 1) % ranks)

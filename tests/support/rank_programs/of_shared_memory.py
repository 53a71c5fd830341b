"""Sums in memory that ranks share: bit by bit the oracle's, and what is left if a rank ends."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import tiny_plans as tiny
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.engine import oracle
from gradsync.lifetimes import leftovers
from gradsync.plan import Plan
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import binding
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from rank_programs.of_tiny_plans import compute_with

SIZES = (3, 1000, 4099)
TURNS = 3


class Part(NamedTuple):
    """What a part of a chip ends with: its last sum and parameters, twice and of the oracle; what it was bound to."""

    first: dict[str, bytes]
    second: dict[str, bytes]
    oracle: dict[str, bytes]
    in_rank_order: dict[str, bytes]  # the same sums in order of rank
    shared_files: int  # of those that it has made, how many have a name when training has ended
    cpus: set[int]
    threads: int


def plan_of_parts(ranks: int, collective: str = "shared_tree") -> Plan:
    """A step of so many parts of a chip, in float32."""
    layers = tuple(Layer(name=f"layer{i}", bytes=4 * size, backward_seconds=1e-3) for i, size in enumerate(SIZES))
    workload = Workload(name="tiny", forward_seconds=1e-3, layers=layers)
    scheme = schemes.Scheme(name="parts", schedule="single", collective=collective)
    return schemes.plan(scheme, workload, Linear(0.0, 1e-9), ranks, lr=0.5)


def gradient(rank: int, number: int, parameter: np.ndarray) -> np.ndarray:
    """Numbers whose sums are rounded."""
    drawn = np.random.default_rng((rank, number)).normal(size=len(parameter)) * 10.0 ** (rank % 5)
    return drawn.astype(np.float32)


def parts_of_a_chip(rank: int, ranks: int) -> Part:
    """Trains twice, and by the oracle; bound to a part of the machine if it has enough cores."""
    plan, groups, made = plan_of_parts(ranks), Groups(), []
    shared_file = leftovers.shared_file

    def noted(size: int) -> tuple[int, str]:
        handle, path = shared_file(size)
        made.append(Path(path))
        return handle, path

    leftovers.shared_file = noted
    if ranks <= len(binding.cores()):
        binding.bind_parts([plan])
    ended = []
    for _ in range(2):
        executor = Executor(plan, rank, groups)
        executor.run(TURNS, compute_with(executor, gradient))
        ended.append({name: executor.buffers[name].numpy().tobytes() for name in ("gradient", "parameter")})
    groups.close()
    of_oracle, in_rank_order = (
        {name: values.tobytes() for name, values in oracle.evaluate(each, TURNS, gradient, {})[rank].items()}
        for each in (plan, plan_of_parts(ranks, "native"))
    )
    assert made
    files = sum(path.exists() for path in made)
    return Part(*ended, of_oracle, in_rank_order, files, os.sched_getaffinity(0), torch.get_num_threads())


def killed_part(rank: int, ranks: int) -> None:
    """Rank 1 is killed while others wait for its sum."""
    _end(rank, ranks, lambda: os.kill(os.getpid(), signal.SIGKILL))


def raising_part(rank: int, ranks: int) -> None:
    """A part raises while others wait for its sum."""
    _end(rank, ranks, _raise)


def _raise() -> None:
    raise ValueError("no gradient today")


def _end(rank: int, ranks: int, end: Callable[[], None]) -> None:
    """Rank 1 does that in its fourth turn, and leaves a file with the time in the folder of the launch."""

    def pull(rank: int, number: int, parameter: np.ndarray) -> Any:
        if rank == 1 and number == 3:
            Path(sys.argv[-1], "ended").write_text(str(time.monotonic()))
            end()
        return tiny.pull(rank, number, parameter)

    executor = Executor(tiny.synchronous(ranks, algorithm="shared_tree"), rank, Groups())
    executor.run(10_000, compute_with(executor, pull))

"""Ranks that come late, are killed or crash."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch.distributed as dist

import tiny_plans as tiny
from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.plan.trace import Trace
from gradsync.rounds.lowering import lowered
from gradsync.runtime import group
from gradsync.runtime.alignment import offsets
from gradsync.runtime.contenders import gathered
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.step import Step
from gradsync.schedules import Message
from rank_programs.of_tiny_plans import compute_with

LATE = 0.3  # seconds


def straggling(rank: int, ranks: int) -> tuple[list[Any], Trace]:
    """Clocks that differ by an hour, and a rank that comes late to every message: (offsets, trace of all ranks)."""
    shift = 3600.0 * rank
    clocks = offsets(lambda: time.perf_counter() + shift, [f"node {rank}" for rank in range(ranks)])
    groups, plan = Groups(), tiny.synchronous(ranks, messages=[Message(0, 3)])
    executor = Executor(plan, rank, groups)
    pull = compute_with(executor, tiny.pull)

    def late(number: int, step: Step) -> None:
        time.sleep(LATE * (rank == 1))
        pull(number, step)

    executor.run(4, late)
    trace = gathered(plan, executor.trace(), rank, 4)
    groups.close()
    return clocks, trace


def killed_worker(rank: int, ranks: int) -> None:
    """Rank 1 of an asynchronous server is killed while the server waits for anybody."""
    _die(tiny.async_server(ranks - 1), rank)


def killed_in_a_ring(rank: int, ranks: int) -> None:
    """Rank 1 is killed in the middle of synchronous training."""
    _die(lowered(tiny.synchronous(ranks, algorithm="ring")), rank)


def killed_in_a_collective(rank: int, ranks: int) -> None:
    """Rank 1 is killed while the executor carries its messages."""
    _die(tiny.synchronous(ranks, algorithm="ring"), rank)


def crashed_in_a_ring(rank: int, ranks: int) -> None:
    """Native code of rank 1 ends it, as the memory allocator does with a damaged heap."""
    _die(lowered(tiny.synchronous(ranks, algorithm="ring")), rank, signal.SIGABRT)


def _die(plan: Plan, rank: int, how: signal.Signals = signal.SIGKILL) -> None:
    executor = Executor(plan, rank, Groups())
    pull = compute_with(executor, tiny.pull)

    def compute(turn: int, step: Step) -> None:
        if rank == 1 and turn == 3:
            os.kill(os.getpid(), how)
        pull(turn, step)

    executor.run(10_000, compute)


def limits(rank: int, ranks: int) -> tuple[float, str]:
    """A rank that is late for a meeting is waited for, one that is late for a message is not: (seconds, words)."""
    group.MESSAGE_SECONDS = 5.0  # ranks that share cores take a while to connect, too
    groups, plan = Groups(), tiny.synchronous(ranks)
    executor = Executor(plan, rank, groups)
    late = 10.0 * (rank == 1)
    time.sleep(late)
    began = time.monotonic()
    dist.barrier()
    met = time.monotonic() - began
    time.sleep(late)
    try:
        executor.run(1, compute_with(executor, tiny.pull))
    except RunError as error:
        return met, str(error)
    return met, ""

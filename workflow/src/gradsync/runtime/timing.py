"""Seconds of an all-reduce between the running ranks, message size by message size."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist

WARM_UP = 3


def all_reduce_seconds(sizes: list[int], repeats: int) -> list[tuple[int, float]]:
    """(bytes, seconds) of each repeat, in rounds over all sizes; collective over all ranks.

    A time is that of the slowest rank. Sizes take turns, so that a slow moment of the machine does not fall on one.
    """
    buffers = {size: torch.zeros(max(1, size // 4)) for size in sizes}
    found: list[tuple[int, float]] = []
    for turn in range(repeats + WARM_UP):
        for size in sizes:
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(buffers[size])
            seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            if turn >= WARM_UP:
                found.append((buffers[size].numel() * 4, float(seconds)))
    return found

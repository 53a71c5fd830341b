"""Seconds of an all-reduce between the running ranks, message size by message size.

As in an execution, a thread of its own sends one message after the other, without a barrier between them.
"""

from __future__ import annotations

import threading
import time

import numpy as np
import torch
import torch.distributed as dist

WARM_UP = 3


def all_reduce_seconds(sizes: list[int], repeats: int, seconds_a_size: float) -> dict[int, list[float]]:
    """bytes -> seconds of each repeat, float32 sums, the mean of the ranks'; collective over all ranks.

    As many of each size as fit into `seconds_a_size`, at least a fifteenth of `repeats` and at most all of them.
    Sizes take turns, so that a slow moment of the machine does not fall on one. Each wait is part of some message, so
    the times of all of them add up to what they took together.
    """
    group = dist.new_group()
    buffers = [torch.zeros(max(1, size // 4)) for size in sizes]
    found: list[list[float]] = [[] for _ in buffers]

    def send(number: int) -> None:
        start = time.perf_counter()
        dist.all_reduce(buffers[number], group=group)
        found[number].append(time.perf_counter() - start)

    def row(counts: list[int]) -> None:
        for turn in range(max(counts)):
            for number, count in enumerate(counts):
                if turn < count:
                    send(number)

    def in_a_thread(counts: list[int]) -> np.ndarray:
        """Mean seconds of each size.  # (sizes,)"""
        for times in found:
            times.clear()
        lane = threading.Thread(target=row, args=(counts,))
        lane.start()
        lane.join()
        agreed = torch.tensor([np.mean(times) for times in found])
        dist.all_reduce(agreed, op=dist.ReduceOp.MAX)
        return agreed.numpy()

    alone = in_a_thread([WARM_UP] * len(sizes))
    few = max(1, repeats // 15)
    in_a_thread([int(np.clip(seconds_a_size / seconds, few, repeats)) for seconds in alone])
    every = [torch.tensor(times, dtype=torch.float64) for times in found]
    for times in every:
        dist.all_reduce(times)
    dist.destroy_process_group(group)
    return {
        4 * len(buffer): (times / dist.get_world_size()).tolist() for buffer, times in zip(buffers, every, strict=True)
    }

"""How fast MSTopK selects on a processor and on a GPU, beside torch.topk; a program of its own.

k = 0.001 d of 25 million 32-bit numbers (ResNet-50), two threads. Targets of `mstopk`: a quarter of the time of
`torch.topk` of the magnitudes; twice that of `x.abs().max()`, one pass with a temporary; and no more memory besides the
vector than a copy of it. On a GPU, if torch sees one: a fifth of the time of `torch.topk`; the rate at which the vector
is read is told. What is timed takes turns, and each ratio is the median over rounds. That the positions are the exact
top k is looked at in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from gradsync.benchmarks import rows
from gradsync.benchmarks.rows import Row
from gradsync.errors import RunError
from gradsync.runtime.selection import exact_topk, mstopk
from gradsync.statistics.intervals import median_interval

ELEMENTS, K, THREADS, ROUNDS = 25_000_000, 25_000, 2, 11
WARM_UP = 1  # rounds that are not timed
TARGETS = {"torch.topk": 1 / 4, "one pass": 2.0}  # seconds of mstopk over those of the other, at most
ON_GPU: dict[str, float | None] = {"torch.topk": 1 / 5, "one pass": None}
TARGET_COPIES = 1.0  # of the vector


def measure() -> Row:
    """Rows of the ratios and of the memory, and whether all are met; raises RunError for a wrong selection."""
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        on_gpu = measured_on_gpu(ELEMENTS, K) if torch.cuda.is_available() else []
        return rows.result([*measured(ELEMENTS, K), *on_gpu])
    finally:
        torch.set_num_threads(threads)


def measured(elements: int, k: int) -> list[Row]:
    """The rows for a vector of so many elements on a processor."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(0))
    seconds = _seconds(values, k)
    of_ratios = [compared(seconds["mstopk"], seconds[other], other, target) for other, target in TARGETS.items()]
    copies = peak_bytes(lambda: mstopk.select(values, k, turn=0)) / values.nbytes
    memory = {"task": "mstopk: memory besides the vector, in copies of it", "ratio": copies}
    return [*of_ratios, {**memory, "target_ratio": TARGET_COPIES, "met": copies <= TARGET_COPIES}]


def measured_on_gpu(elements: int, k: int, device: str = "cuda") -> list[Row]:
    """The rows for a vector on the current GPU; times are the host's, from before a call until the GPU is through."""
    values = torch.randn(elements, generator=torch.Generator().manual_seed(0)).to(device)
    seconds = _seconds(values, k)
    told = {"device": torch.cuda.get_device_name(), "bytes_per_second": values.nbytes / np.median(seconds["mstopk"])}
    return [
        {**compared(seconds["mstopk"], seconds[other], f"{other}, on a GPU", target), **told}
        for other, target in ON_GPU.items()
    ]


def _seconds(values: torch.Tensor, k: int) -> dict[str, list[float]]:
    """Task -> its seconds in each round; raises RunError for a wrong selection."""
    tasks: dict[str, Callable[[], torch.Tensor]] = {
        "mstopk": lambda: mstopk.select(values, k, turn=0),
        "torch.topk": lambda: torch.topk(values.abs(), k).indices,
        "one pass": lambda: values.abs().max(),
    }
    finished = torch.cuda.synchronize if values.is_cuda else lambda: None
    refuse_wrong(values, tasks["mstopk"](), k)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for turn in range(-WARM_UP, ROUNDS):
        for name in list(tasks)[:: 1 if turn % 2 else -1]:
            finished()
            start = time.perf_counter()
            tasks[name]()
            finished()
            if turn >= 0:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def refuse_wrong(values: torch.Tensor, positions: torch.Tensor, k: int) -> None:
    """Raises RunError unless the positions are distinct and hold the magnitudes of the exact top k."""
    found, best = (values[each].abs().sort().values for each in (positions, exact_topk.select(values, k, turn=0)))
    if len(positions.unique()) != k or not torch.equal(found, best):
        raise RunError(f"benchmark selection: mstopk did not select the {k} largest of {len(values)} elements")


def compared(own: list[float], others: list[float], other: str, target: float | None) -> Row:
    """The row of seconds over those of another, round by round; the median is to be at most the target, if any."""
    interval = median_interval(np.divide(own, others))
    return {
        "task": f"mstopk over {other}",
        "seconds": float(np.median(own)),
        "seconds_of_other": float(np.median(others)),
        **rows.ratio(interval),
        "target_ratio": target,
        "met": target is None or interval[1] <= target,
    }


def peak_bytes(task: Callable[[], torch.Tensor]) -> int:
    """The most bytes of tensors that a task has at once, by torch's own record of what it allocates and frees."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        task()
    held = most = 0
    for event in record.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most

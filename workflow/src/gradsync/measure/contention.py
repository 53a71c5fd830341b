"""Measure contention, what several all-reduces at once take: the points of `costs/contention_points.py`.

Each lane has connections of its own, as when a plan is executed: a blocking thread on a processor, a queue on a GPU.
1, 2, .. K lanes start an all-reduce of one size each at the same moment, and again once all of them are through; the
time that counts is that of each message from its own start, mean over lanes and ranks. Sizes and numbers of lanes take
turns in an order that each sweep draws anew, so that what disturbs the machine for a while disturbs no k or size more
than others.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist

from gradsync.costs.contention_fit import Fit
from gradsync.costs.contention_points import Contention, ContentionPoint
from gradsync.errors import RunError
from gradsync.measure.allreduce import sizes
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.group import Groups, settle
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.schedules import DEFAULT_LANE

SWEEPS = 7
SECONDS_PER_POINT = 0.06  # and sweep
REPEATS = (3, 60)  # per point and sweep: fewest and most
LONG_SECONDS = 0.5  # a message that takes so long is timed once per sweep
WARM_UP = 2


class Lanes(Protocol):
    """Lanes of this rank."""

    def seconds(self, lanes: int, size: int, count: int) -> list[float]:
        """Of every message: the first `lanes` start one each at the same moment, `count` times."""


def measure(smallest: int, largest: int, lanes: int, device: Device = PROCESSOR) -> Contention:
    """The times of the running ranks, the same on all of them; collective over at least two.

    Raises RunError if the backend gives no connections for a lane.
    """
    others = OtherWork()
    groups, ranks = Groups(device), dist.get_world_size()
    names = [f"{DEFAULT_LANE}{number}" for number in range(lanes)]
    everyone = tuple(range(ranks))
    for number, name in enumerate(names):
        try:
            groups.add(name, everyone)
        except RuntimeError as error:
            raise RunError(
                f"rank {dist.get_rank()}: {device.backend} made connections for {number} lane(s), not for {name!r} of "
                f"{lanes}: {str(error).splitlines()[0]}: take fewer --lanes"
            ) from None
    message_sizes = sizes(smallest, largest)
    connections = [groups.of(name, everyone) for name in names]
    timer: Lanes = (_Queues if device.queued else _Threads)(
        device, connections, message_sizes[-1], [groups.queue(n) for n in names]
    )
    points = [(k, size) for k in range(1, lanes + 1) for size in message_sizes]
    for k, size in points:  # the first ones pay for memory and connections
        timer.seconds(k, size, 1)
    typical = _of_all_ranks([float(np.mean(timer.seconds(k, size, WARM_UP))) for k, size in points])
    counts = [_count(seconds) for seconds in typical]
    _say(f"{len(points)} points, {SWEEPS} sweeps of about {sum(np.multiply(counts, typical)):.1f} s")
    times: list[list[float]] = [[] for _ in points]
    for sweep in range(SWEEPS):
        begun = time.perf_counter()
        of_rank = [0.0] * len(points)
        for number in np.random.default_rng(sweep).permutation(len(points)).tolist():
            settle(device)
            k, size = points[number]
            of_rank[number] = float(np.mean(timer.seconds(k, size, counts[number])))
        for of_point, seconds in zip(times, _of_all_ranks(of_rank), strict=True):
            of_point.append(seconds)
        _say(f"sweep {sweep + 1} of {SWEEPS}: {time.perf_counter() - begun:.1f} s")
    groups.close()
    return Contention(
        ranks=ranks,
        points=tuple(
            ContentionPoint(lanes=k, bytes=size, seconds=tuple(seconds))
            for (k, size), seconds in zip(points, times, strict=True)
        ),
        provenance={
            "measured": f"{SWEEPS} sweeps of {min(counts)} to {max(counts)} repeats a point, points in random order",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            **machines(),
            **others.share(),
            **device.provenance(),
        },
    )


def _count(seconds: float) -> int:
    return 1 if seconds > LONG_SECONDS else int(np.clip(SECONDS_PER_POINT / seconds, *REPEATS))


def _of_all_ranks(seconds: Sequence[float]) -> list[float]:
    """The mean over all ranks of each of these."""
    total = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / dist.get_world_size()).tolist()


def _say(text: str) -> None:
    if dist.get_rank() == 0:
        print(f"measure contention: {text}", file=sys.stderr, flush=True)


class _Threads:
    """A blocking thread for each lane; they meet before each message."""

    def __init__(self, device: Device, groups: Sequence[dist.ProcessGroup], largest: int, queues: Sequence[Any]):
        self.groups = groups
        self.buffers = [torch.zeros(largest // 4) for _ in groups]

    def seconds(self, lanes: int, size: int, count: int) -> list[float]:
        meeting = threading.Barrier(lanes)

        def lane(number: int) -> list[float]:
            buffer, seconds = self.buffers[number][: size // 4], []
            try:
                for _ in range(count):
                    meeting.wait()
                    start = time.perf_counter()
                    dist.all_reduce(buffer, group=self.groups[number])
                    seconds.append(time.perf_counter() - start)
            except BaseException:
                meeting.abort()  # or the others would wait for this one
                raise
            return seconds

        with ThreadPoolExecutor(lanes) as pool:
            running = [pool.submit(lane, number) for number in range(lanes)]
        with suppress(StopIteration):  # a lane that failed, before those that only waited for it
            raise next(e for e in (each.exception() for each in running) if e and not _broken(e))
        return [seconds for each in running for seconds in each.result()]


def _broken(error: BaseException) -> bool:
    return isinstance(error, threading.BrokenBarrierError)


class _Queues:
    """A queue for each lane; all wait for one mark before each message, and the next mark waits for all of them."""

    def __init__(self, device: Device, groups: Sequence[dist.ProcessGroup], largest: int, queues: Sequence[Any]):
        self.device, self.groups, self.queues = device, groups, queues
        self.buffers = [torch.zeros(largest // 4, device=device.torch_device) for _ in groups]

    def seconds(self, lanes: int, size: int, count: int) -> list[float]:
        stamps = []
        for _ in range(count):
            begin, ends = self.device.mark(), []
            for number in range(lanes):
                with self.device.on(self.queues[number]):
                    self.device.wait(begin)
                    start = self.device.mark()
                    dist.all_reduce(self.buffers[number][: size // 4], group=self.groups[number])
                    ends.append(self.device.mark())
                    stamps.append((start, ends[-1]))
            for end in ends:
                self.device.wait(end)
        settle(self.device)
        return [self.device.seconds(start, end) for start, end in stamps]


def columns(contention: Contention, fit: Fit) -> str:
    """Text for people: a message's time by size and number at once, bandwidth of all together, gamma, the model."""
    rows: list[tuple[str, ...]] = [
        ("size", "at once", "time", "algbw of all", "gamma", "95 % low", "high", "model"),
        ("(B)", "", "(us)", "(GB/s)", "", "", "", "error"),
    ]
    gammas = {(each.lanes, each.bytes): each for each in fit.gammas}
    errors = {(each.lanes, each.bytes): each.relative for each in fit.residuals}
    for point in sorted(contention.points, key=lambda point: (point.bytes, point.lanes)):
        gamma = gammas.get((point.lanes, point.bytes))
        derived: tuple[str, ...] = ("", "", "")
        if gamma:
            cells = gamma.gamma or ("none", None, None)
            derived = tuple(f"{cell:.3f}" if isinstance(cell, float) else cell or "" for cell in cells)
        rows.append(
            (
                *(f"{point.bytes}", f"{point.lanes}", f"{point.mean * 1e6:.1f}"),
                f"{point.lanes * point.bytes / point.mean / 1e9:.3f}",
                *derived,
                f"{errors[point.lanes, point.bytes]:+.1%}" if gamma else "",
            )
        )
    return "\n".join("".join(f"{cell:>14}" for cell in row) for row in rows)


def answer(fit: Fit) -> dict[str, Any]:
    """The fit, for the result of the command."""
    return {
        "capacity": fit.capacity._asdict(),
        "host_seconds": fit.host_seconds._asdict(),
        "alone": fit.alone.describe(),
        "model_mean_residual": fit.mean_residual,
        "notes": list(fit.notes),
    }

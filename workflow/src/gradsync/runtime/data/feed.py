"""The shards of one rank, turn by turn."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

import numpy as np
import torch

from gradsync.runtime.data.batches import Batches
from gradsync.runtime.data.samples import Samples
from gradsync.runtime.devices import PROCESSOR, Device

Shard = tuple[torch.Tensor, torch.Tensor]


class Data(NamedTuple):
    """Training samples, test samples (None: the set has none) and how the ranks share the training samples."""

    name: str
    training: Samples
    test: Samples | None
    batches: Batches


def shard(data: Data, turn: int, rank: int, dtype: torch.dtype = torch.float32, device: Device = PROCESSOR) -> Shard:
    """Inputs (batch, *shape) and labels of `rank` in `turn`, on `device`: images in `dtype`, tokens as they are."""
    indices = data.batches.indices(turn, rank)
    inputs, labels = data.training.batch(indices, turn // data.batches.turns_an_epoch)
    return device.put(inputs.to(dtype) if inputs.is_floating_point() else inputs), device.put(labels)


class Feed:
    """Call it with a turn, any turn, to get that shard of the rank.

    If images are decoded, those of the next turn are prepared in a thread while this one is computed; `close` ends the
    thread, as does leaving a `with` block. A shard goes to the device when it is called for, on the caller's queue.
    `seconds` has, for each of the last calls, how long its samples took to read and how long the caller waited.
    """

    def __init__(self, data: Data, rank: int, dtype: torch.dtype = torch.float32, device: Device = PROCESSOR):
        self.data, self.rank, self.dtype, self.device = data, rank, dtype, device
        self._thread = ThreadPoolExecutor(1) if data.training.decoded else None
        self._ahead: dict[int, Future[tuple[Shard, float]]] = {}  # turn -> its shard and seconds, at most one
        self.seconds: list[tuple[float, float]] = []

    def __call__(self, turn: int) -> Shard:
        """Inputs (batch, *shape) and labels; raises InputError for a broken file."""
        if self._thread is None:
            return shard(self.data, turn, self.rank, self.dtype, self.device)
        current = self._ahead.pop(turn, None) or self._prepare(self._thread, turn)
        for skipped in self._ahead.values():
            skipped.cancel()
        start = time.perf_counter()
        (inputs, labels), reading = current.result()
        self.seconds.append((reading, time.perf_counter() - start))
        self._ahead = {turn + 1: self._prepare(self._thread, turn + 1)}
        return self.device.put(inputs), self.device.put(labels)

    def taken_seconds(self) -> tuple[float, float] | None:
        """The medians of `seconds`, which begins anew; None if no samples are decoded."""
        seconds, self.seconds = self.seconds, []
        if not seconds:
            return None
        reading, waiting = np.median(seconds, axis=0).tolist()
        return reading, waiting

    def _prepare(self, thread: ThreadPoolExecutor, turn: int) -> Future[tuple[Shard, float]]:
        return thread.submit(self._timed, turn)

    def _timed(self, turn: int) -> tuple[Shard, float]:
        start = time.perf_counter()
        return shard(self.data, turn, self.rank, self.dtype), time.perf_counter() - start

    def close(self) -> None:
        """End the thread and drop what it has prepared."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

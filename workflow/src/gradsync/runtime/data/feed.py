"""The shards of one rank, turn by turn."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Self

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
    """

    def __init__(self, data: Data, rank: int, dtype: torch.dtype = torch.float32, device: Device = PROCESSOR):
        self.data, self.rank, self.dtype, self.device = data, rank, dtype, device
        self._thread = ThreadPoolExecutor(1) if data.training.decoded else None
        self._ahead: dict[int, Future[Shard]] = {}  # turn -> its shard, at most one

    def __call__(self, turn: int) -> Shard:
        """Inputs (batch, *shape) and labels; raises InputError for a broken file."""
        if self._thread is None:
            return shard(self.data, turn, self.rank, self.dtype, self.device)
        current = self._ahead.pop(turn, None) or self._prepare(self._thread, turn)
        for skipped in self._ahead.values():
            skipped.cancel()
        prepared = current.result()
        self._ahead = {turn + 1: self._prepare(self._thread, turn + 1)}
        inputs, labels = prepared
        return self.device.put(inputs), self.device.put(labels)

    def _prepare(self, thread: ThreadPoolExecutor, turn: int) -> Future[Shard]:
        return thread.submit(shard, self.data, turn, self.rank, self.dtype)

    def close(self) -> None:
        """End the thread and drop what it has prepared."""
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""Which samples a rank gets in which turn."""

from __future__ import annotations

import numpy as np
import torch


class Batches:
    """The samples of each rank in each turn: every epoch has another permutation, cut into shards of the whole batch.

    Differs from the MG-WFBP paper's Algorithm 2, line 9: the first batch is not skipped and the incomplete tail of
    an epoch is dropped instead of read past the end (MG-E12).

    A step may `accumulate` several micro-batches: each is a turn here, and an epoch holds whole steps.
    """

    def __init__(self, samples: int, batch: int, ranks: int, seed: int, accumulate: int = 1):
        self.samples, self.batch, self.ranks, self.seed = samples, batch, ranks, seed
        self.turns_an_epoch = samples // (batch * ranks * accumulate) * accumulate
        self._last: tuple[int, np.ndarray] | None = None  # an epoch and its order: ImageNet's takes 20 ms to make

    def indices(self, turn: int, rank: int) -> torch.Tensor:
        """Indices of the samples of `rank` in `turn` (both from 0).  # (batch,)"""
        epoch, within = divmod(turn, self.turns_an_epoch)
        start = (within * self.ranks + rank) * self.batch
        return torch.from_numpy(self._order(epoch)[start : start + self.batch])

    def _order(self, epoch: int) -> np.ndarray:
        last = self._last  # one read: another thread may replace it
        if last is None or last[0] != epoch:
            last = epoch, np.random.default_rng((self.seed, epoch)).permutation(self.samples)
            self._last = last
        return last[1]

"""Data sets, and which samples a rank gets in which turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from gradsync.errors import InputError

TEST_SHARE = 0.2


class Split(NamedTuple):
    """Images (samples, channels, height, width) as float32 in [0, 1], labels (samples,) as int64."""

    images: torch.Tensor
    labels: torch.Tensor


def digits(size: int = 28, seed: int = 0) -> tuple[Split, Split]:
    """The handwritten digits that scikit-learn ships, resized to size x size: (training, test)."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images.astype(np.float32) / 16.0)[:, None]
    images = torch.nn.functional.interpolate(images, (size, size), mode="bilinear", align_corners=False)
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(labels)))
    test = int(len(labels) * TEST_SHARE)
    return Split(images[order[test:]], labels[order[test:]]), Split(images[order[:test]], labels[order[:test]])


SETS: dict[str, Callable[[int, int], tuple[Split, Split]]] = {"digits": digits}


def get(name: str) -> Callable[[int, int], tuple[Split, Split]]:
    """The function (size, seed) -> (training, test) of that name; raises InputError that lists the known ones."""
    if name not in SETS:
        raise InputError(f"data {name!r} does not exist; there are: {', '.join(SETS)}")
    return SETS[name]


class Batches:
    """The samples of each rank in each turn: every epoch another permutation, cut into shards of the whole batch.

    Differs from the MG-WFBP paper's Algorithm 2, line 9: the first batch is not skipped and the incomplete tail of
    an epoch is dropped instead of read past the end (MG-E12).
    """

    def __init__(self, samples: int, batch: int, ranks: int, seed: int):
        self.samples, self.batch, self.ranks, self.seed = samples, batch, ranks, seed
        self.turns_an_epoch = samples // (batch * ranks)

    def indices(self, turn: int, rank: int) -> torch.Tensor:
        """Indices of the samples of `rank` in `turn` (both from 0).  # (batch,)"""
        epoch, within = divmod(turn, self.turns_an_epoch)
        order = np.random.default_rng((self.seed, epoch)).permutation(self.samples)
        start = (within * self.ranks + rank) * self.batch
        return torch.from_numpy(order[start : start + self.batch])


def load(
    name: str, model: str, shape: tuple[int, ...], batch: int, ranks: int, seed: int
) -> tuple[Split, Split, Batches]:
    """Training and test samples in the shape that `model` takes, and how ranks share them.

    Raises InputError where the set does not exist, does not fit the model, or is smaller than one batch of all ranks.
    """
    training, test = get(name)(shape[-1], seed)
    if training.images.shape[1] != shape[0]:
        raise InputError(
            f"data {name!r} has {training.images.shape[1]} channel(s), model {model!r} takes {shape[0]}: "
            "choose another model or data"
        )
    batches = Batches(len(training.labels), batch, ranks, seed)
    if batches.turns_an_epoch < 1:
        raise InputError(f"batch {batch} x {ranks} ranks is more than the {len(training.labels)} samples of {name!r}")
    return training, test, batches

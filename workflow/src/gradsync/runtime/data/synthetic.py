"""Random inputs and labels, for throughput alone: nothing can be learnt from them, so there is no test set.

Sample i is a window of one long vector of noise, or of random tokens, that starts at i. All samples differ, and
together they take little more memory than one.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from gradsync.runtime.data.masked import ORDINARY, MaskedPairs
from gradsync.runtime.data.samples import Images, Samples, Wanted
from gradsync.runtime.models.language import START
from gradsync.runtime.models.spec import IMAGES, PAIRS

TURNS = 100  # in an epoch, whatever the batch and the ranks


class Noise(Images):
    """Samples of standard normal noise; see the module."""

    def __init__(self, samples: int, classes: int, shape: tuple[int, ...], seed: int):
        random = np.random.default_rng(seed)
        self.shape = shape
        self.labels = torch.from_numpy(random.integers(classes, size=samples))
        noise = torch.from_numpy(random.standard_normal(math.prod(shape) + samples - 1, dtype=np.float32))
        self.windows = noise.unfold(0, math.prod(shape), 1)  # (samples, values), a view

    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images, the same in every epoch.  # (indices, channels, height, width)"""
        return self.windows[indices].view(-1, *self.shape)


class Translations:
    """Random sentences with random translations, labelled with the translation.

    Inputs (indices, 2, length): the sentence, and its translation one place later; labels (indices, length).
    """

    decoded = False

    def __init__(self, samples: int, vocabulary: int, length: int, seed: int):
        tokens = np.random.default_rng(seed).integers(ORDINARY, vocabulary, (2, samples + length - 1))
        self.shape: tuple[int, ...] = (2, length)
        self.windows = torch.from_numpy(tokens).unfold(1, length, 1)  # (2, samples, length), a view

    def __len__(self) -> int:
        return self.windows.shape[1]

    def batch(self, indices: torch.Tensor, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Those sentences, the same in every epoch."""
        sentences, labels = self.windows[:, indices]
        later = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=START)
        return torch.stack([sentences, later], 1), labels


def samples(wanted: Wanted, count: int) -> Samples:
    """`count` samples of the wanted kind."""
    if wanted.takes == IMAGES:
        return Noise(count, wanted.classes, wanted.shape, wanted.seed)
    length = wanted.shape[-1]
    if wanted.takes == PAIRS:
        tokens = np.random.default_rng(wanted.seed).integers(ORDINARY, wanted.classes, count + length)
        return MaskedPairs(tokens, np.arange(count), length, wanted.classes, (wanted.seed,))
    return Translations(count, wanted.classes, length, wanted.seed)


def read(wanted: Wanted) -> tuple[Samples, None]:
    """As many samples as make an epoch of 100 turns."""
    return samples(wanted, TURNS * wanted.turn), None

"""Random images and labels, for throughput alone: nothing can be learnt from them, so there is no test set.

Image i is a window of one long vector of noise that starts at i. All images differ, and together they take little more
memory than one.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from gradsync.runtime.data.samples import Wanted

TURNS = 100  # in an epoch, whatever the batch and the ranks


class Noise:
    """Samples of standard normal noise; see the module."""

    decoded = False

    def __init__(self, samples: int, classes: int, shape: tuple[int, int, int], seed: int):
        random = np.random.default_rng(seed)
        self.shape = shape
        self.labels = torch.from_numpy(random.integers(classes, size=samples))
        noise = torch.from_numpy(random.standard_normal(math.prod(shape) + samples - 1, dtype=np.float32))
        self.windows = noise.unfold(0, math.prod(shape), 1)  # (samples, values), a view

    def images(self, indices: torch.Tensor, epoch: int) -> torch.Tensor:
        """Those images, the same in every epoch.  # (indices, channels, height, width)"""
        return self.windows[indices].view(-1, *self.shape)


def read(wanted: Wanted) -> tuple[Noise, None]:
    """As many samples as make an epoch of 100 turns."""
    return Noise(TURNS * wanted.turn, wanted.classes, wanted.shape, wanted.seed), None

"""The handwritten digits that scikit-learn ships: 1797 images of 8 x 8, a fifth of them for the test."""

from __future__ import annotations

import numpy as np
import torch

from gradsync.runtime.data.samples import Pixels, Wanted

TEST_SHARE = 0.2
LEVELS = 16


def read(wanted: Wanted) -> tuple[Pixels, Pixels]:
    """Training and test samples; which are which depends on the seed."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    pixels = torch.from_numpy(bunch.images.astype(np.uint8))[:, None]
    labels = torch.from_numpy(bunch.target.astype(np.int64))
    order = torch.from_numpy(np.random.default_rng(wanted.seed).permutation(len(labels)))
    test, training = order.tensor_split([int(len(labels) * TEST_SHARE)])
    return (
        Pixels(pixels[training], labels[training], LEVELS, wanted.shape),
        Pixels(pixels[test], labels[test], LEVELS, wanted.shape),
    )

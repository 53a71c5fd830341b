"""The handwritten digits that scikit-learn ships: 1797 images of 8 x 8, a fifth of them for the test."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from gradsync.errors import InputError
from gradsync.runtime.data.samples import Pixels, Wanted

TEST_SHARE = 0.2
LEVELS = 16
SIDE = 8


def read(wanted: Wanted) -> tuple[Pixels, Pixels]:
    """Training and test samples; which are which depends on the seed."""
    rows = np.loadtxt(_file(), delimiter=",", dtype=np.uint8)  # of each image its pixels and its label: (1797, 65)
    pixels = torch.from_numpy(rows[:, :-1].reshape(-1, 1, SIDE, SIDE))
    labels = torch.from_numpy(rows[:, -1].astype(np.int64))
    order = torch.from_numpy(np.random.default_rng(wanted.seed).permutation(len(labels)))
    test, training = order.tensor_split([int(len(labels) * TEST_SHARE)])
    return (
        Pixels(pixels[training], labels[training], LEVELS, wanted.shape),
        Pixels(pixels[test], labels[test], LEVELS, wanted.shape),
    )


def _file() -> Path:
    """The file of `sklearn.datasets.load_digits`; the import of that takes every rank longer than the reading.

    Raises InputError if scikit-learn is not there, or keeps it elsewhere.
    """
    package = find_spec("sklearn")
    if package is not None and package.origin is not None:
        file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            return file
    raise InputError("data digits: scikit-learn's digits.csv.gz is not installed: set up the environment again")

"""Top-k by double sampling, as Deep Gradient Compression has it (Lin et al., 2018). Recall 1.

An exact top-k of a sample gives a threshold. What is not less than it survives, and a second exact top-k chooses among
the survivors. The sample is every 100th element (1 percent, as in that paper) from a random one on.

Differs from the paper: if fewer than k survive, the paper sends fewer. Here the threshold falls to a place in the
sample twice as far down, until k survive, so that the result has k elements and is the exact top k. Of equal
magnitudes the first are taken.
"""

from __future__ import annotations

import numpy as np

from gradsync.compressors import Vector, all_or_none, generator, keys

STRIDE = 100  # elements of which the sample has one


def first_sampled(turn: int, elements: int) -> int:
    """The position of the first element of the sample."""
    return int(generator(turn, elements).integers(min(STRIDE, elements)))


def select(values: Vector, k: int, *, turn: int) -> Vector:
    """Positions of the k largest magnitudes.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(len(values), k)
    magnitude = keys(values)
    sample = np.sort(magnitude[first_sampled(turn, len(values)) :: STRIDE])[::-1]
    place, survivors = max(1, k // STRIDE), np.empty(0, np.int64)
    while len(survivors) < k:
        threshold = sample[place - 1] if place <= len(sample) else 0
        survivors = np.flatnonzero(magnitude >= threshold)
        place *= 2
    return np.sort(survivors[np.argsort(-magnitude[survivors], kind="stable")[:k]])

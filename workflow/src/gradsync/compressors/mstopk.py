"""MSTopK, corrected: a search for the threshold that counts, and sorts nothing (cloud paper, Algorithm 1). Recall 1.

Each sampling counts the magnitudes that are not less than a trial threshold. Two thresholds come closer to the exact
one from above (thres1, at most k elements) and from below (thres2, at least k). All elements of the first selection
are taken; what they lack of k is one contiguous run, from a random start, of those between the thresholds.

Differs from the paper, whose letter is `mstopk_as_printed`:
- thres1 starts above every magnitude, so that the run supplies what no trial has selected (CT-E01);
- the search begins at 0 and not at the mean, so that it ends at the exact threshold for every k (CT-E02, CT-E03);
- it halves the range of the bits of the magnitude and not that of its value, and ends when no number is left between
  the thresholds: after 31 samplings (63 for 64-bit numbers), where the paper has N = 30. So the elements between the
  thresholds are equal ones, and the result is an exact top k;
- the random start is from a half-open range (CT-E04); the run stays contiguous (CT-E05); a plain else (CT-E06);
- k = 0 selects nothing, k >= d everything (CT-E08).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gradsync.compressors import Vector, all_or_none, generator, keys


class Search(NamedTuple):
    """What a search ends with: the thresholds, and how many magnitudes are not less than each (k1 <= k <= k2)."""

    first: float
    second: float
    above_first: int
    above_second: int


def search(values: Vector, k: int) -> Search:
    """The thresholds of the k largest of `values`, 0 < k < elements; they are neighbouring numbers.

    The first is infinity if k or more elements are infinite.
    """
    magnitude = keys(values)
    key, above = _threshold(magnitude, k)
    (second,) = np.array([key], magnitude.dtype).view(values.dtype)
    first = np.nextafter(second, values.dtype.type(np.inf))
    return Search(float(first), float(second), above, int(np.count_nonzero(magnitude >= key)))


def _threshold(magnitude: Vector, k: int) -> tuple[int, int]:
    """(the k-th largest key, how many are larger). No element has the key `high`, and at least k have `low` or more."""
    low, high, above = 0, int(magnitude.max()) + 1, 0
    while high - low > 1:
        trial = low + (high - low) // 2
        count = int(np.count_nonzero(magnitude >= trial))
        if count < k:
            high, above = trial, count
        else:
            low = trial
    return low, above


def run_start(turn: int, elements: int) -> float:
    """Where the run begins, as a part (0 <= part < 1) of the places where it can."""
    return float(generator(turn, elements).random())


def select(values: Vector, k: int, *, turn: int) -> Vector:
    """Positions of the k largest magnitudes; of equal ones a run.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(len(values), k)
    magnitude = keys(values)
    key, above = _threshold(magnitude, k)
    between = np.flatnonzero(magnitude == key)
    start = int(run_start(turn, len(values)) * (len(between) - (k - above) + 1))
    return np.sort(np.concatenate([np.flatnonzero(magnitude > key), between[start : start + k - above]]))

"""MSTopK to the letter of Algorithm 1 of the cloud paper, with N = 30 samplings.

It fails where the letter does (CT-E01 to CT-E08 in `mstopk`): on a vector of zeros or of equal magnitudes, if more than
k elements have the largest magnitude, and for k = 0. Then no trial assigns thres1, which stays 0, and the first
selection is all elements. `select` raises RunError there, because no k positions exist; for NaN and infinity, too. For
k above the number of elements not less than the mean, thres2 stays 0, and the run is an arbitrary one of all smaller
elements: the recall falls from 1 below a density of 0.42 (Gaussian values) to 0.8 at 0.6.

The mean is summed in float64 and thresholds are rounded to the type of the values, so that readers agree.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradsync.compressors import Vector, all_or_none
from gradsync.compressors.mstopk import Search, run_start
from gradsync.errors import RunError

SAMPLINGS = 30
FAILS = "it finds no k elements of zeros, of many equal magnitudes, and of NaN"


def search(values: Vector, k: int) -> Search:
    """The thresholds after all samplings (lines 1 to 24)."""
    a = np.abs(values)

    def nnz(threshold: float) -> int:
        return int(np.count_nonzero(a >= a.dtype.type(threshold)))

    return sampled(float(a.mean(dtype=np.float64)), float(a.max()), len(a), k, nnz, a.dtype.type)


def sampled(
    mean: float, u: float, elements: int, k: int, nnz: Callable[[float], int], rounded: Callable[[float], float]
) -> Search:
    """Lines 4 to 24, given the mean and the maximum u. `nnz` counts what is not less than a threshold.

    The counts are those of line 25 for each threshold, k2 = d as long as no trial has assigned thres2.
    """
    l, r, k1, k2, thres1, thres2 = 0.0, 1.0, 0, elements, 0.0, 0.0  # noqa: E741  the paper's symbols
    for _ in range(SAMPLINGS):
        ratio = l + (r - l) / 2
        thres = float(rounded(mean + ratio * (u - mean)))
        count = nnz(thres)
        if count <= k:
            r = ratio
            if count > k1:
                k1, thres1 = count, thres
        else:
            l = ratio  # noqa: E741
            if count < k2:
                k2, thres2 = count, thres
    return Search(thres1, thres2, k1 if thres1 else elements, k2)


def run(found: Search, between: int, k: int, turn: int, elements: int) -> slice:
    """Lines 26 to 28: which of the elements between the thresholds are taken. Raises RunError if they can't be."""
    if found.above_first > k or between < k - found.above_first:
        raise RunError(
            f"compressor 'mstopk_as_printed': Algorithm 1 finds no {k} of these {elements} elements, since no "
            "threshold selects so few: the vector is constant, or has many equal magnitudes, or NaN; take mstopk"
        )
    start = int(run_start(turn, elements) * (between - (k - found.above_first) + 1))
    return slice(start, start + k - found.above_first)


def select(values: Vector, k: int, *, turn: int) -> Vector:
    """Positions as Algorithm 1 has them; raises RunError where it fails.  # (k,)"""
    if k < 0 or k >= len(values):
        return all_or_none(len(values), k)
    found = search(values, k)
    a, dtype = np.abs(values), values.dtype.type
    between = np.flatnonzero((a < dtype(found.first)) & (a >= dtype(found.second)))
    chosen = between[run(found, len(between), k, turn, len(values))]
    return np.sort(np.concatenate([np.flatnonzero(a >= dtype(found.first)), chosen]))

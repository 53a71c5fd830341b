"""Exact top-k: the k largest magnitudes (cloud paper, Eq. 2, which is its nn.topk). Recall 1.

Differs from the paper: magnitudes not less than the k-th largest are selected, as a strict comparison would leave out
one element (CT-E07). Of equal magnitudes the first are taken.
"""

from __future__ import annotations

import numpy as np

from gradsync.compressors import Vector, all_or_none, keys


def select(values: Vector, k: int, *, turn: int) -> Vector:
    """Positions of the k largest magnitudes.  # (k,)"""
    if not 0 < k < len(values):
        return all_or_none(len(values), k)
    return np.sort(np.argsort(-keys(values), kind="stable")[:k])

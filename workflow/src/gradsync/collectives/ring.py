"""Ring all-reduce: N-1 rounds of reduce-scatter, N-1 of all-gather (MG-WFBP Table II).

Piece r is summed up on rank r.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import Round, Shape

TOPOLOGY, POSTCONDITION = "switch", "sum"


def pieces(shape: Shape) -> int:
    """One piece per rank."""
    return prod(shape)


def halves(shape: Shape) -> bool:
    """Always."""
    return True


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """In round k rank r sends piece r-k-1 to r+1, which adds it; after N-1 rounds piece r is complete on r."""
    n = prod(shape)
    ranks = np.arange(n)
    right, one, rail = (ranks + 1) % n, np.ones(n, int), np.zeros(n, int)
    piece = np.arange(2 * n) % n  # those of a round are a part of it: nothing to compute for each of many rounds
    for k in range(n - 1):
        yield Round(ranks, right, piece[n - 1 - k : 2 * n - 1 - k], one, True, rail)
    for k in range(n - 1):
        yield Round(ranks, right, piece[n - k : 2 * n - k], one, False, rail)

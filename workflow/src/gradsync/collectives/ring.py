"""Ring all-reduce: N-1 rounds of reduce-scatter, N-1 of all-gather (MG-WFBP Table II)."""

import numpy as np

from gradsync.collectives import Round


def pieces(n: int) -> int:
    """One piece a rank."""
    return n


def rounds(n: int) -> list[Round]:
    """In round k rank r sends piece r-k to r+1, which adds it; after N-1 rounds piece r+1 is complete on r."""
    ranks = np.arange(n)
    right, one = (ranks + 1) % n, np.ones(n, int)
    scatter = [Round(ranks, right, (ranks - k) % n, one, True) for k in range(n - 1)]
    gather = [Round(ranks, right, (ranks + 1 - k) % n, one, False) for k in range(n - 1)]
    return scatter + gather

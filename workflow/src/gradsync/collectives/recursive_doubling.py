"""Recursive doubling all-reduce: partners exchange the whole message and add (MG-WFBP Table II)."""

import numpy as np

from gradsync.collectives import Round, power_of_two


def pieces(n: int) -> int:
    """The message is never cut."""
    return 1


def rounds(n: int) -> list[Round]:
    """In round k rank r exchanges with r xor 2^k; log2 N rounds."""
    ranks = np.arange(n)
    zero, one = np.zeros(n, int), np.ones(n, int)
    return [Round(ranks, ranks ^ 2**k, zero, one, True) for k in range(power_of_two(n, "recursive_doubling"))]

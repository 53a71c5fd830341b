"""Recursive halving and doubling all-reduce (Rabenseifner; MG-WFBP Table II)."""

import numpy as np

from gradsync.collectives import Round, power_of_two


def pieces(n: int) -> int:
    """One piece a rank."""
    return n


def rounds(n: int) -> list[Round]:
    """Halve: give the partner its half of what is still mine and add its part of mine. Then the same way back."""
    ranks = np.arange(n)
    halve, double = [], []
    for k in range(power_of_two(n, "halving_doubling")):
        half = n >> (k + 1)
        partner = ranks ^ half
        count = np.full(n, half)
        mine = ranks // half * half  # the half that stays with a rank begins here
        halve.append(Round(ranks, partner, partner // half * half, count, True))
        double.append(Round(ranks, partner, mine, count, False))
    return halve + double[::-1]

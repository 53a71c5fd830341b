"""Recursive halving and doubling all-reduce (Rabenseifner; MG-WFBP Table II).

Differs from the paper: any number of ranks (see `_power_of_two.py`: two more rounds if it is no power of two).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import Round, Shape, on_one_rail
from gradsync.collectives._power_of_two import core, folded

TOPOLOGY, POSTCONDITION = "switch", "sum"


def pieces(shape: Shape) -> int:
    """One piece per rank of the largest power of two."""
    return core(prod(shape))


def halves(shape: Shape) -> bool:
    """If there is a piece for each rank."""
    return pieces(shape) == prod(shape)


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """Halve: send the partner its half of what this rank still has, add what comes. Then the same way back."""
    n = prod(shape)
    return folded(n, core(n), _exchange(core(n)))


def _exchange(n: int) -> Iterator[Round]:
    ranks = np.arange(n)
    steps = range(n.bit_length() - 1)
    for adds in (True, False):
        for k in steps if adds else reversed(steps):
            half = n >> (k + 1)
            partner = ranks ^ half
            owner = partner if adds else ranks  # whose half is sent
            yield on_one_rail(ranks, partner, owner // half * half, np.full(n, half), adds)

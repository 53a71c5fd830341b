"""Recursive doubling all-reduce: partners exchange the whole message and add (MG-WFBP Table II).

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
    """The message is never cut."""
    return 1


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """In round k rank r exchanges with r xor 2^k; log2 N rounds."""
    n = prod(shape)
    ranks = np.arange(core(n))
    zero, one = np.zeros_like(ranks), np.ones_like(ranks)
    steps = range(core(n).bit_length() - 1)
    return folded(n, 1, (on_one_rail(ranks, ranks ^ 2**k, zero, one, True) for k in steps))

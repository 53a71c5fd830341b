"""Pairwise exchange: an all-to-all, in which each rank sends another piece of its message to every other rank.

Piece d of rank r becomes piece r of rank d. In round k a rank exchanges with the ranks at distance k on either side, so
that what it sends and what it gets have the same places, and no other memory holds pieces that wait for their turn.

Differs from the pairwise exchange of MPI libraries (Thakur, Rabenseifner and Gropp, 2005, Section 4.4), of N-1 rounds
with one peer each: floor(N/2) rounds carry as many bytes, whatever the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import ALL_TO_ALL, Round, Shape

TOPOLOGY, POSTCONDITION, KINDS = "switch", "exchange", (ALL_TO_ALL,)


def pieces(shape: Shape) -> int:
    """One piece per rank."""
    return prod(shape)


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """floor(N/2) rounds; in the last of an even number both sides are one rank."""
    n = prod(shape)
    ranks = np.arange(n)
    for k in range(1, n // 2 + 1):
        distances = (k,) if 2 * k == n else (k, -k)
        source = np.tile(ranks, len(distances))
        peer = np.concatenate([(ranks + distance) % n for distance in distances])
        yield Round(source, peer, peer, np.ones_like(peer), False, np.zeros_like(peer), into=source)

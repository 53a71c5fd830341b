"""Peer-to-peer parameter servers: every rank is the server of one piece (BML paper, Section 2).

All push to all, owners add, all pull from all: 2 (N-1)/N T_F on a network that does not block. Links of a topology
with relaying hosts carry more: a message crosses one link per hop.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import Round, Shape, on_one_rail
from gradsync.errors import InputError

TOPOLOGY, POSTCONDITION = "switch", "sum"
MOST_RANKS = 4096  # whose transfers of a round fit into memory


def pieces(shape: Shape) -> int:
    """One piece per rank."""
    return prod(shape)


def refuse(shape: Shape) -> None:
    """Raises InputError if a round has too many transfers."""
    if prod(shape) > MOST_RANKS:
        raise InputError(
            f"collective 'ps_p2p' sends N(N-1) messages a round: at most {MOST_RANKS} ranks can be described"
        )


def halves(shape: Shape) -> bool:
    """Always: rank r is the server of piece r."""
    return True


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """Push, pull; each rank begins with the one after it, so that they don't all go to one server at once."""
    n = prod(shape)
    rank = np.repeat(np.arange(n, dtype=np.int32), n - 1)
    other = (rank + np.tile(np.arange(1, n, dtype=np.int32), n)) % n
    one = np.ones_like(rank)
    yield on_one_rail(rank, other, other, one, True)
    yield on_one_rail(rank, other, rank, one, False)

"""Exchange level by level: in each aggregation step a rank sends its neighbours on one level what they are to own.

The way of a message over levels l_0, l_1, ...: in step w each rank sends every neighbour on level l_w the pieces whose
owner shares that neighbour's digits l_0 .. l_w, and adds what it gets; after the last step each rank owns one piece.
The broadcast goes the same way back (BML paper, Algorithm 1, of which this is one thread; a hierarchical all-reduce is
one thread alone).

Pieces lie in memory in the order of the digits of their owners, digit l_0 the first: so whatever is exchanged is one
range. The paper leaves that order open.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from gradsync.collectives import Shape
from gradsync.errors import InputError

Exchange = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
MOST_TRANSFERS = 1 << 26  # of a round, about 8 GB


def refuse_transfers(name: str, shape: Shape, threads: int = 1) -> None:
    """Raises InputError if a round of so many threads has too many transfers to be described."""
    if (most := threads * prod(shape) * (max(shape) - 1)) > MOST_TRANSFERS:
        raise InputError(
            f"collective {name!r} sends {most} messages a round: at most {MOST_TRANSFERS} can be described"
        )


def digits(shape: Shape) -> np.ndarray:
    """Digits of all ranks, level 0 first.  # (levels, ranks)"""
    ranks = np.arange(prod(shape), dtype=np.int32)
    units = np.cumprod([1, *shape[:-1]])
    return np.stack([ranks // unit % size for unit, size in zip(units, shape, strict=True)])


def transfers(shape: Shape, order: Sequence[int], step: int, back: bool) -> Exchange:
    """(source, destination, first, pieces) of aggregation step `step`, or of its way back.  # each (transfers,)

    `order` is the levels in the order in which the aggregation takes them.
    """
    n, level = prod(shape), order[step]
    size = shape[level]
    digit = digits(shape)
    unit = prod(shape[:level])
    ranks = np.arange(n, dtype=np.int32)
    source = np.repeat(ranks, size - 1)
    mine = np.repeat(digit[level], size - 1)
    theirs = (mine + np.tile(np.arange(1, size, dtype=np.int32), n)) % size
    destination = source + (theirs - mine) * unit
    # on the way there what the neighbour is to own; on the way back what this rank owns
    count = prod(shape[each] for each in order[step + 1 :])
    shared = np.zeros(n, np.int32)  # first piece of those whose owners share a rank's digits order[0] .. order[step]
    left = n
    for each in order[: step + 1]:
        left //= shape[each]
        shared += digit[each] * left
    first = np.repeat(shared, size - 1) if back else shared[destination]
    return source, destination, first, np.full(len(source), count, np.int32)


def owner_digits(shape: Shape, order: Sequence[int]) -> np.ndarray:
    """Digits of the owner of each piece of a thread, level 0 first.  # (levels, pieces)"""
    left, piece, digit = prod(shape), np.arange(prod(shape)), {}
    for level in order:
        left //= shape[level]
        digit[level] = piece // left % shape[level]
    return np.stack([digit[level] for level in range(len(shape))])

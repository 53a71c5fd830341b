"""Pipelined chain: a broadcast that goes from rank to rank in chunks, and a reduce that comes back the same way.

NCCL's broadcast and reduce are such chains. A rank sends a chunk on in the round after it has come:
C chunks between N ranks take C + N - 2 rounds each way, 1 + (N-2)/C times what the link takes for the bytes. With few
chunks there are few start-ups, with many the pipeline fills soon.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import BROADCAST, REDUCE, Round, Shape, on_one_rail
from gradsync.errors import InputError
from gradsync.limits import MOST_TRANSFERS

TOPOLOGY, POSTCONDITION, CHUNKED, KINDS = "switch", "sum", True, (BROADCAST, REDUCE)
CHUNKS_PER_HOP = 4  # if no number is given: filling the pipeline then adds a quarter of the time


def pieces(shape: Shape, chunks: int | None = None) -> int:
    """The chunks."""
    return chunks or CHUNKS_PER_HOP * max(1, prod(shape) - 1)


def refuse(shape: Shape) -> None:
    """Raises InputError for more transfers than are ever timed."""
    hops = prod(shape) - 1
    if (transfers := 2 * hops * CHUNKS_PER_HOP * hops) > MOST_TRANSFERS:
        raise InputError(f"collective 'chain' sends {transfers} messages: at most {MOST_TRANSFERS} are timed")


def rounds(shape: Shape, root: int = 0, chunks: int | None = None) -> Iterator[Round]:
    """In round t the rank at place p of the chain, from its far end on, sends chunk t - p to the next place."""
    n, count = prod(shape), pieces(shape, chunks)
    rank = (np.arange(n) + root) % n  # by hops from the root
    for adds in (True, False):
        way = rank[::-1] if adds else rank
        for number in range(n - 2 + count):
            place = np.arange(max(0, number - count + 1), min(number, n - 2) + 1)
            yield on_one_rail(way[place], way[place + 1], number - place, np.ones_like(place), adds)

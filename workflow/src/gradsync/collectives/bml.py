"""BML: k threads aggregate and broadcast over BCube(n, k), each on another level at any time (BML paper, Algorithm 1).

The message is cut into k N pieces; piece <e, v> belongs to thread e and is aggregated on server v. Thread t takes the
levels t, t+1, ..., t+k-1 (mod k) in turn, and then the way back. All k links of a server are busy all the time:
GST = 2 (N-1)/(k N) T_F.

Differs from the paper: nothing is sent from a state that a step has already changed (the paper's listing has no
barrier, BM-E03); some pieces of a layer that has fewer than k N elements are empty (BM-E06). The paper leaves the place
of pieces in memory open: here every exchange is one range (`_level_by_level.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import Round, Shape
from gradsync.collectives._level_by_level import owner_digits, refuse_transfers, transfers
from gradsync.errors import InputError

TOPOLOGY, POSTCONDITION, LEVELS_AT_ONCE = "bcube", "sum", True


def pieces(shape: Shape) -> int:
    """k N."""
    return len(shape) * prod(shape)


def refuse(shape: Shape) -> None:
    """Raises InputError for levels that are not equal, since some links would wait for others, or too many servers."""
    if len(set(shape)) > 1:
        raise InputError(
            f"collective 'bml' needs levels of one size, not {' x '.join(map(str, shape))}: use all n^k hosts of a "
            "BCube(n, k), or fewer of its levels"
        )
    refuse_transfers("bml", shape, threads=len(shape))


def order(thread: int, k: int) -> list[int]:
    """The levels in the order in which a thread aggregates."""
    return [(thread + step) % k for step in range(k)]


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """k rounds of aggregation, k of broadcast, of all threads together."""
    k, n = len(shape), prod(shape)
    for adds in (True, False):
        for step in range(k) if adds else reversed(range(k)):
            parts = []
            for thread in range(k):
                source, destination, first, count = transfers(shape, order(thread, k), step, back=not adds)
                rail = np.full_like(source, order(thread, k)[step])
                parts.append((source, destination, thread * n + first, count, rail))
            source, destination, first, count, rail = map(np.concatenate, zip(*parts, strict=True))
            yield Round(source, destination, first, count, adds, rail)


def piece_ids(shape: Shape) -> np.ndarray:
    """The paper's name <e, v_(k-1), ..., v_0> of each piece, in the order in which they lie.  # (k N, 1 + k)"""
    k, n = len(shape), prod(shape)
    parts = []
    for thread in range(k):
        owner = owner_digits(shape, order(thread, k))[::-1]  # (k, n), level k-1 first
        parts.append(np.column_stack([np.full(n, thread), *owner]))
    return np.concatenate(parts)

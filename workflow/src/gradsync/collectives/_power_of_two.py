"""Ranks beyond a power of two: others take their messages over before an exchange between partners, and send the sum.

Rank C + i, with C the largest power of two, sends its whole message to rank i and gets the sum back: two more rounds of
the whole message (Thakur, Rabenseifner and Gropp, 2005, Section 4.5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gradsync.collectives import Round, on_one_rail


def core(n: int) -> int:
    """The largest power of two in `n`."""
    return 1 << (n.bit_length() - 1)


def folded(n: int, pieces: int, exchange: Iterable[Round]) -> Iterator[Round]:
    """The rounds of `exchange`, which is between the first `core(n)` ranks, for all `n`."""
    beyond = np.arange(core(n), n)
    partner, zero, whole = beyond - core(n), np.zeros_like(beyond), np.full_like(beyond, pieces)
    if len(beyond):
        yield on_one_rail(beyond, partner, zero, whole, True)
    yield from exchange
    if len(beyond):
        yield on_one_rail(partner, beyond, zero, whole, False)

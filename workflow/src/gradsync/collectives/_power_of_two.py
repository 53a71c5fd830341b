"""Ranks beyond a power of two: folded into others before an exchange between partners, told the sum after it.

Rank C + i, where C is the largest power of two, hands its whole message to rank i and gets the sum back: two more
rounds of the whole message (Thakur, Rabenseifner and Gropp, 2005, Section 4.5).
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
    rest = np.arange(core(n), n)
    host, zero, whole = rest - core(n), np.zeros_like(rest), np.full_like(rest, pieces)
    if len(rest):
        yield on_one_rail(rest, host, zero, whole, True)
    yield from exchange
    if len(rest):
        yield on_one_rail(host, rest, zero, whole, False)

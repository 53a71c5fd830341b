"""NaiveAG: every rank encodes its own gradient, and all ranks gather all values and all indices.

Source: the cloud paper's TopK-SGD (Section 2.2, Eq. 3 twice): two all-gathers over all P workers, whose bytes grow with
P.
"""

from __future__ import annotations

from math import prod

from gradsync.sparse import Way, everyone

TOPOLOGY = "switch"


def way(shape: tuple[int, ...]) -> Way:
    """All ranks gather, whatever the levels."""
    return Way(None, everyone(prod(shape)))

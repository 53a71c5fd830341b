"""Binary tree all-reduce: reduce to the root, then broadcast, the whole message each time (MG-WFBP Table II).

Differs from the paper: any number of ranks; those that a power of two lacks are missing leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import Round, Shape, on_one_rail

TOPOLOGY, POSTCONDITION, ROOTED = "switch", "sum", True


def pieces(shape: Shape) -> int:
    """The message is never cut."""
    return 1


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """ceil(log2 N) rounds up, as many down."""
    n = prod(shape)
    levels = range((n - 1).bit_length())
    for adds in (True, False):
        for k in levels if adds else reversed(levels):
            child = np.arange(2**k, n, 2 ** (k + 1))
            parent = child - 2**k
            child, parent = (child + root) % n, (parent + root) % n
            zero, one = np.zeros_like(child), np.ones_like(child)
            source, destination = (child, parent) if adds else (parent, child)
            yield on_one_rail(source, destination, zero, one, adds)

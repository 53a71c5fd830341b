"""Binary tree all-reduce: reduce to rank 0, then broadcast, the whole message each time (MG-WFBP Table II)."""

import numpy as np

from gradsync.collectives import Round, power_of_two


def pieces(n: int) -> int:
    """The message is never cut."""
    return 1


def rounds(n: int) -> list[Round]:
    """log2 N rounds up, log2 N rounds down."""
    up, down = [], []
    for k in range(power_of_two(n, "binary_tree")):
        parent = np.arange(0, n, 2 ** (k + 1))
        child = parent + 2**k
        zero, one = np.zeros_like(parent), np.ones_like(parent)
        up.append(Round(child, parent, zero, one, True))
        down.append(Round(parent, child, zero, one, False))
    return up + down[::-1]

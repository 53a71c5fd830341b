"""One parameter server: all push the whole message to it, it adds, all pull the sum. The server is a worker too."""

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
    """Push, pull."""
    n = prod(shape)
    others = np.delete(np.arange(n), root)
    servers, zero, one = np.full(n - 1, root), np.zeros(n - 1, int), np.ones(n - 1, int)
    yield on_one_rail(others, servers, zero, one, True)
    yield on_one_rail(servers, others, zero, one, False)

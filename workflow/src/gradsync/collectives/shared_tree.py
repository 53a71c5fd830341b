"""Binary tree over memory that all ranks share: how the parts of one chip sum their gradients (SC17, Section 6.2).

The rounds are those of `binary_tree`, but nothing is sent: a rank reads what another one has, in that one's own memory,
and adds it to its own. The order of the additions is that of the tree, so that a sum is the same bit by bit each time.

Differs from the paper: the sum goes to all parts by the same tree, which the paper leaves open.
"""

from __future__ import annotations

from collections.abc import Iterator

from gradsync.collectives import Round, Shape, binary_tree

TOPOLOGY, POSTCONDITION, ROOTED, IN_MEMORY = "numa", "sum", True, True


def pieces(shape: Shape) -> int:
    """The message is never cut."""
    return binary_tree.pieces(shape)


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """ceil(log2 N) rounds up, as many down."""
    return binary_tree.rounds(shape, root)

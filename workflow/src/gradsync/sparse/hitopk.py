"""HiTopKComm: dense inside a node, sparse between nodes (cloud paper, Algorithm 2).

The n ranks of a node reduce-scatter, so that each has the sum of its slice of d/n elements; it encodes that slice; the
ranks with the same slice on all m nodes gather each other's values and indices and decode their sum; the ranks of a
node gather the dense slices.

Differs from the paper:
- the loop of lines 2 to 4 runs over nodes and overwrites a slice: here each rank keeps its own (CT-E15); values and
  indices count from the beginning of a slice (CT-E10); line 22 gathers slices (CT-E11), which are dense (CT-E12);
- d/n need not be whole: slices differ by an element at most, and k = max(1, round(rho d/n)) for the next multiple d of
  n (CT-E16);
- the sum is divided by the number of ranks, as in all schemes (CT-E17);
- the paper has no error feedback (CT-E18). Here each rank may keep a residual of its slice of its node's sum.
"""

from __future__ import annotations

from gradsync.plan import Axis
from gradsync.sparse import Way

TOPOLOGY = "dense_gpu"
LEVELS = 2


def way(shape: tuple[int, ...]) -> Way:
    """Ranks of a node, nodes."""
    local, nodes = (*shape, 1, 1)[:LEVELS]
    return Way(Axis("local", local), Axis("node", nodes))

"""Hierarchical all-reduce: aggregate among neighbours on level 0, then on level 1, ..., and all the way back.

Source: BML paper, Section 3.3 (grouped by edge switches, aggregation switches, pods of a Fat-Tree); two levels of it
are the reduce-scatter in a node, all-reduce between nodes, all-gather in a node of dense GPU clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from gradsync.collectives import Round, Shape, on_one_rail
from gradsync.collectives._level_by_level import refuse_transfers, transfers

TOPOLOGY, POSTCONDITION = "dense_gpu", "sum"


def pieces(shape: Shape) -> int:
    """One piece per rank."""
    return prod(shape)


def refuse(shape: Shape) -> None:
    """Raises InputError if a level has too many neighbours."""
    refuse_transfers("hierarchical", shape)


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """A round for each level there, and one for each level back."""
    levels = [level for level, size in enumerate(shape) if size > 1]
    for step in range(len(levels)):
        yield on_one_rail(*transfers(shape, levels, step, back=False), True)
    for step in reversed(range(len(levels))):
        yield on_one_rail(*transfers(shape, levels, step, back=True), False)

"""2D-torus all-reduce: reduce-scatter along the row, all-reduce along the column, all-gather along the row.

Each is a ring, so that only neighbours of a grid speak to one another (Mikami et al., 2018; the cloud paper's 2DTAR,
whose text says no more than that it is hierarchical and dense). Rows are nodes of GPUs there.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from gradsync.collectives import Round, Shape
from gradsync.errors import InputError
from gradsync.limits import MOST_TRANSFERS

TOPOLOGY, POSTCONDITION = "torus2d", "sum"


def pieces(shape: Shape) -> int:
    """One piece per rank."""
    return prod(shape)


def refuse(shape: Shape) -> None:
    """Raises InputError for more than two levels, or for more transfers than are ever timed."""
    if len([size for size in shape if size > 1]) > 2:
        raise InputError(f"collective 'torus2d' needs two levels, not {len(shape)}: choose torus2d or dense_gpu")
    if (transfers := 2 * sum(size - 1 for size in shape) * prod(shape)) > MOST_TRANSFERS:
        raise InputError(f"collective 'torus2d' sends {transfers} messages: at most {MOST_TRANSFERS} are timed")


def rounds(shape: Shape, root: int = 0) -> Iterator[Round]:
    """2 (columns - 1) + 2 (rows - 1) rounds."""
    sizes = [size for size in shape if size > 1]
    columns, rows = [*sizes, 1, 1][:2]
    rank = np.arange(columns * rows)
    column, row = rank % columns, rank // columns
    right = row * columns + (column + 1) % columns
    down = (row + 1) % rows * columns + column
    slices, one = np.full_like(rank, rows), np.ones_like(rank)
    along_row, along_column = np.zeros_like(rank), np.ones_like(rank)

    def in_row(k: int, adds: bool) -> Round:
        return Round(rank, right, (column - k) % columns * rows, slices, adds, along_row)

    def in_column(k: int, adds: bool) -> Round:
        # after the reduce-scatter, rank (row, c) holds slice c+1 of its row
        first = (column + 1) % columns * rows + (row - k) % rows
        return Round(rank, down, first, one, adds, along_column)

    yield from (in_row(k, True) for k in range(columns - 1))
    yield from (in_column(k, True) for k in range(rows - 1))
    yield from (in_column(k - 1, False) for k in range(rows - 1))
    yield from (in_row(k - 1, False) for k in range(columns - 1))

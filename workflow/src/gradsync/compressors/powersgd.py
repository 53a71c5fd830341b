"""PowerSGD: each matrix of gradients is sent as the product of two thin ones (Vogels, Karimireddy, Jaggi, "PowerSGD:
Practical Low-Rank Gradient Compression for Distributed Optimization", NeurIPS 2019, arXiv:1905.13727).

A tensor's gradient is a matrix M of n rows, the length of its first side, and m columns. With Q of m rows and r
columns, from the last turn or at first drawn, Algorithm 1 is a step of subspace iteration on the mean over the ranks:

    P <- M Q, summed over the ranks; P <- orthonormal columns of the same span; Q <- M^T P, mean over the ranks

and what all ranks take for the mean gradient is P Q^T. Both sums are linear in M, so an all-reduce carries them.

Differs from the paper: what a rank keeps is M - P Q^T of the mean Q, as in the authors' code and in torch's hook, not
of the rank's own (Algorithm 2); summed over the ranks both are the same. P is summed, not averaged: its span is the
same. A matrix for which r (n + m) is not less than n m travels whole, as vectors do. Columns of P that depend on
others, those of a zero matrix say, are replaced, where Algorithm 1 would divide by 0; and a Q that is zero is drawn
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import ml_dtypes
import numpy as np

from gradsync.compressors import Vector

OPTIONS = {"rank": 2, "seed": 0}  # r, and of what Q is drawn
FEEDBACK = True
DEPENDENT = 64  # times the precision of its type: the share of a column beyond others below which it depends on them


class Matrix(NamedTuple):
    """A matrix of gradients, and how many columns its factors have."""

    rows: int
    columns: int
    rank: int

    @property
    def left(self) -> int:
        """Elements of P."""
        return self.rows * self.rank

    @property
    def right(self) -> int:
        """Elements of Q."""
        return self.columns * self.rank


def matrix(shape: Sequence[int], rank: int) -> Matrix | None:
    """How a tensor of this shape is sent; None if it travels whole."""
    if len(shape) < 2:
        return None
    rows, columns = shape[0], prod(shape[1:])
    rank = min(rank, rows, columns)
    return Matrix(rows, columns, rank) if rank * (rows + columns) < rows * columns else None


def of_lengths(elements: int, left: int, right: int) -> Matrix | None:
    """The matrix of so many elements whose factors have so many; None if there is none.

    n m elements, n r and m r: so r^2 = left right / elements.
    """
    if not elements or left * right % elements:
        return None
    rank = round((left * right // elements) ** 0.5)
    if not rank or rank * rank * elements != left * right or left % rank or right % rank:
        return None
    found = Matrix(left // rank, right // rank, rank)
    return found if rank <= min(found.rows, found.columns) else None


def drawn(elements: int, *, seed: float, place: int) -> Vector:
    """The first Q of a matrix, standard normal; `place`: where it lies among those of all matrices.  # (elements,)"""
    return np.random.default_rng((int(seed), place)).standard_normal(elements)


def orthonormal(left: Vector) -> Vector:
    """Columns with the span of those of `left`, orthonormal; what depends on columns before is replaced.

    Gram-Schmidt, twice for each column, in float64. `left`: P, finite, of at least as many rows as columns
    # (rows, rank). What replaces a column is made of the first unit vector that lies half outside the columns before.
    """
    columns = left.astype(np.float64)
    least = DEPENDENT * float(ml_dtypes.finfo(left.dtype).eps)
    for number in range(columns.shape[1]):
        before, column = columns[:, :number], columns[:, number]
        scale = np.abs(column).max(initial=0.0)
        if scale > 0:
            column /= scale  # so that squares neither vanish nor overflow
            column /= np.sqrt(column @ column)
            column -= before @ (before.T @ column)
        length = np.sqrt(column @ column)
        if length <= least:
            column[:] = 0
            outside = (before * before).sum(axis=1) <= (1 + number / len(columns)) / 2
            column[int(outside.argmax())] = 1
            column -= before @ (before.T @ column)
            length = np.sqrt(column @ column)
        column /= length
        column -= before @ (before.T @ column)
        column /= np.sqrt(column @ column)
    return columns

"""PowerSGD for torch: as its kernels in `gradsync.kernels` have it.

On a processor columns become orthonormal by NumPy, as in the oracle; on a GPU without the host, which waits for the
largest magnitude of P and for whether a Q is zero. Products are torch's.
"""

from __future__ import annotations

import torch

from gradsync.compressors import powersgd, refuse_infinite
from gradsync.kernels import _low_rank
from gradsync.runtime.coding import OF_NUMPY


def powersgd_left(reads: list[torch.Tensor], writes: list[torch.Tensor], *, seed: float = 0, first: float = 0) -> None:
    """P = M Q; M lies in the residual, if there is one."""
    place = int(first)
    for gradient, (left, right, *residual) in _low_rank.groups(reads, writes):
        rows, columns, rank = _low_rank.matrix_of(gradient, left, right)
        if not right.any():
            right.copy_(torch.from_numpy(powersgd.drawn(len(right), seed=seed, place=place)))
        source = residual[0].add_(gradient) if residual else gradient
        torch.mm(source.view(rows, columns), right.view(columns, rank), out=left.view(rows, rank))
        place += len(right)


def powersgd_right(reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
    """Orthonormal P; Q = M^T P."""
    for source, (left, right) in _low_rank.groups(reads, writes):
        rows, columns, rank = _low_rank.matrix_of(source, left, right)
        refuse_infinite("powersgd", float(left.abs().max()))
        thin = left.view(rows, rank)
        if left.device.type == "cpu" and left.dtype in OF_NUMPY:
            thin.copy_(torch.from_numpy(powersgd.orthonormal(thin.numpy())))
        else:
            thin.copy_(orthonormal(thin))
        torch.mm(source.view(rows, columns).t(), thin, out=right.view(columns, rank))


def powersgd_decode(reads: list[torch.Tensor], writes: list[torch.Tensor], *, terms: float) -> None:
    """gradient = P Q^T; mean Q; residual -= gradient / terms."""
    for left, (right, gradient, *residual) in _low_rank.groups(reads, writes):
        rows, columns, rank = _low_rank.matrix_of(gradient, left, right)
        torch.mm(left.view(rows, rank), right.view(columns, rank).t(), out=gradient.view(rows, columns))
        right.div_(terms)
        for each in residual:
            each.sub_(gradient, alpha=1 / terms)


def orthonormal(left: torch.Tensor) -> torch.Tensor:
    """`gradsync.compressors.powersgd.orthonormal`, without a look at any value, for which the host would have to wait.

    # (rows, rank)
    """
    columns = left.to(torch.float64, copy=True)
    least = powersgd.DEPENDENT * torch.finfo(left.dtype).eps
    numbers = torch.arange(len(columns), device=left.device)
    for number in range(columns.shape[1]):
        before, column = columns[:, :number], columns[:, number]
        scale = column.abs().max()
        column /= torch.where(scale > 0, scale, 1.0)
        column /= torch.where(scale > 0, (column @ column).sqrt(), 1.0)
        column -= before @ (before.t() @ column)
        dependent = (column @ column).sqrt() <= least
        outside = before.square().sum(dim=1) <= (1 + number / len(columns)) / 2
        unit = (numbers == torch.where(outside, numbers, len(columns)).min()).double()
        column.copy_(torch.where(dependent, unit - before @ (before.t() @ unit), column))
        column /= (column @ column).sqrt()
        column -= before @ (before.t() @ column)
        column /= (column @ column).sqrt()
    return columns

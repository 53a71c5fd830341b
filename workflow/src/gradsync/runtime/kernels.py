"""The kernels again where torch does in place what NumPy's operators need a temporary array for.

A kernel here means what its namesake in `gradsync.kernels` means (a test holds them together); it only takes no memory
and fewer passes. `EXECUTED` is what the executor calls.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gradsync import kernels


def sgd(
    reads: list[torch.Tensor], writes: list[torch.Tensor], *, lr: float, momentum: float = 0.0, scale: float = 1.0
) -> None:
    """v <- mu v + scale g; w <- w - lr v."""
    (gradient,) = reads
    if momentum:
        writes[1].mul_(momentum).add_(gradient, alpha=scale)
        writes[0].add_(writes[1], alpha=-lr)
    else:
        writes[0].add_(gradient, alpha=-lr * scale)


def sgd_scaled(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    scale: float = 1.0,
    growth_interval: float = 2000.0,
) -> None:
    """As its namesake; a sum is finite exactly where all of it is, short of overflow, and needs no temporary."""
    (gradient,) = reads
    scaler = writes[-1]
    if bool(torch.isfinite(gradient.sum(dtype=torch.float64))):
        sgd(reads, writes[:-1], lr=lr, momentum=momentum, scale=scale / float(scaler[0]))
        scaler[1] += 1
        if scaler[1] >= growth_interval:
            scaler[0] *= 2
            scaler[1] = 0
    else:
        scaler[0] *= 0.5
        scaler[1] = 0
        scaler[2] += 1


def cast(reads: list[torch.Tensor], writes: list[torch.Tensor], *, scale: float = 1.0) -> None:
    """writes[0] = scale * reads[0]; scaled in the narrower type, as DDP's fp16 hook does."""
    writes[0].copy_(reads[0])
    if scale != 1.0:
        writes[0].mul_(scale)


EXECUTED: dict[str, Callable[..., None]] = kernels.KERNELS | {"sgd": sgd, "sgd_scaled": sgd_scaled, "cast": cast}

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
    if gradient.device.type != "cpu":
        sgd_scaled_unread(reads, writes, lr=lr, momentum=momentum, scale=scale, growth_interval=growth_interval)
    elif bool(torch.isfinite(gradient.sum(dtype=torch.float64))):
        sgd(reads, writes[:-1], lr=lr, momentum=momentum, scale=scale / float(scaler[0]))
        scaler[1] += 1
        if scaler[1] >= growth_interval:
            scaler[0] *= 2
            scaler[1] = 0
    else:
        scaler[0] *= 0.5
        scaler[1] = 0
        scaler[2] += 1


def sgd_scaled_unread(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    scale: float = 1.0,
    growth_interval: float = 2000.0,
) -> None:
    """`sgd_scaled` without a look at any value, for which the host would have to wait for the device.

    Takes memory for another gradient meanwhile.
    """
    (gradient,) = reads
    parameter, scaler = writes[0], writes[-1]
    finite = torch.isfinite(gradient.sum(dtype=torch.float64))
    step = torch.where(finite, gradient, 0.0).mul_(scale / scaler[0])
    if momentum:
        # a step that is skipped leaves the velocity as it is, and the parameter
        velocity = writes[1]
        kept, moved = (torch.full((), value, dtype=gradient.dtype, device=gradient.device) for value in (momentum, lr))
        velocity.mul_(torch.where(finite, kept, 1.0)).add_(step)
        parameter.addcmul_(velocity, torch.where(finite, moved, 0.0), value=-1)
    else:
        parameter.add_(step, alpha=-lr)
    good = scaler[1] + 1
    grown = finite & (good >= growth_interval)
    scaler[0] *= torch.where(grown, 2.0, torch.where(finite, 1.0, 0.5))
    scaler[1] = torch.where(finite & ~grown, good, 0.0)
    scaler[2] += ~finite


def cast(reads: list[torch.Tensor], writes: list[torch.Tensor], *, scale: float = 1.0) -> None:
    """writes[0] = scale * reads[0]; scaled in the narrower type, as DDP's fp16 hook does."""
    writes[0].copy_(reads[0])
    if scale != 1.0:
        writes[0].mul_(scale)


EXECUTED: dict[str, Callable[..., None]] = kernels.KERNELS | {"sgd": sgd, "sgd_scaled": sgd_scaled, "cast": cast}

"""Kernels for torch, if it has other names for what NumPy does, or does in place what needs a temporary in NumPy.

A kernel of this module means what its namesake in `gradsync.kernels` means (a test compares them). The executor calls
those in `EXECUTED`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from gradsync import compressors
from gradsync.kernels import ENCODE, KERNELS, UNSCALED, _loss_scale, _unscaled
from gradsync.runtime import coding, selection
from gradsync.runtime.adam import adam, adamw, shrunk
from gradsync.runtime.layerwise import lamb, lamb_ratios, lars, lars_ratios
from gradsync.runtime.low_rank import powersgd_decode, powersgd_left, powersgd_right
from gradsync.runtime.norms import length
from gradsync.runtime.selection import Select


def sgd(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
) -> None:
    """v <- mu v + scale g; w <- w - lr v."""
    gradient, parameter = reads[0], writes[0]
    if clip and gradient.device.type != "cpu":
        rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        return sgd_clipped_unread(reads, writes, **rates, scale=scale, clip=clip)
    if clip:
        scale *= float(shrunk(reads[1][0], scale, clip))
    if momentum:
        _with_decay(writes[1].mul_(momentum).add_(gradient, alpha=scale), parameter, weight_decay)
        parameter.add_(writes[1], alpha=-lr)
    else:
        _decayed(parameter, lr * weight_decay).add_(gradient, alpha=-lr * scale)


def _with_decay(velocity: torch.Tensor, parameter: torch.Tensor, weight_decay: float) -> torch.Tensor:
    return velocity.add_(parameter, alpha=weight_decay) if weight_decay else velocity


def _decayed(parameter: torch.Tensor, share: float) -> torch.Tensor:
    return parameter.mul_(1 - share) if share else parameter


def sgd_clipped_unread(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
    scale: float,
    clip: float,
) -> None:
    """`sgd` with `clip`, without a look at the norm, for which the host would have to wait for the device."""
    gradient, parameter = reads[0], writes[0]
    factor = scale * shrunk(reads[1][0], scale, clip)
    if momentum:
        _with_decay(writes[1].mul_(momentum).addcmul_(gradient, factor), parameter, weight_decay)
        parameter.add_(writes[1], alpha=-lr)
    else:
        _decayed(parameter, lr * weight_decay).addcmul_(gradient, factor, value=-lr)


def sgd_scaled(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    growth_interval: float = 2000.0,
) -> None:
    """As its namesake. Short of overflow a sum is finite exactly if all of it is, and it needs no temporary."""
    gradient, scaler = reads[0], writes[-1]
    rates = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
    if gradient.device.type != "cpu":
        sgd_scaled_unread(reads, writes, **rates, scale=scale, clip=clip, growth_interval=growth_interval)
        return
    good = bool(torch.isfinite(gradient.sum(dtype=torch.float64)))
    if good:
        sgd(reads, writes[:-1], **rates, scale=scale / float(scaler[0]), clip=clip)
    _loss_scale.move(scaler, good, growth_interval)


def sgd_scaled_unread(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    growth_interval: float = 2000.0,
) -> None:
    """`sgd_scaled` without a look at any value, for which the host would have to wait for the device.

    It takes memory for another gradient meanwhile.
    """
    gradient, parameter, scaler = reads[0], writes[0], writes[-1]
    finite = torch.isfinite(gradient.sum(dtype=torch.float64))
    factor = scale / scaler[0]
    if clip:
        factor = torch.where(finite, factor * shrunk(reads[1][0], factor, clip), 1.0)
    step = torch.where(finite, gradient, 0.0).mul_(factor)
    if weight_decay:
        decay = torch.full((), weight_decay, dtype=gradient.dtype, device=gradient.device)
        step.addcmul_(parameter, torch.where(finite, decay, 0.0))
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


def norm(reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
    """writes[0][i] = Euclidean norm of reads[i], summed in the type of writes."""
    for i, array in enumerate(reads):
        writes[0][i] = length(array, writes[0].dtype)


def squares(reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
    """writes[0][0] = sum of the squares of reads[0], as `norm` sums them."""
    norm(reads, writes)
    writes[0].square_()


def cast(reads: list[torch.Tensor], writes: list[torch.Tensor], *, scale: float = 1.0) -> None:
    """writes[0] = scale * reads[0]; scaled in the narrower type, as DDP's fp16 hook does."""
    writes[0].copy_(reads[0])
    if scale != 1.0:
        writes[0].mul_(scale)


def average(reads: list[torch.Tensor], writes: list[torch.Tensor], *, terms: float) -> None:
    """w <- sum / terms."""
    torch.div(reads[0], terms, out=writes[0])


def outer_nesterov(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    outer_lr: float,
    terms: float,
    outer_momentum: float = 0.0,
) -> None:
    """d = c - sum / terms; u <- mu u + d; c <- c - lr (d + mu u); w <- c. d takes the place of w meanwhile."""
    parameter, centre = writes[:2]
    outer = torch.sub(centre, torch.div(reads[0], terms, out=parameter), out=parameter)
    if outer_momentum:
        velocity = writes[2].mul_(outer_momentum).add_(outer)
        outer.add_(velocity, alpha=outer_momentum)
    parameter.copy_(centre.add_(outer, alpha=-outer_lr))


def elastic_worker(
    reads: list[torch.Tensor], writes: list[torch.Tensor], *, lr: float, rho: float, momentum: float = 0.0
) -> None:
    """w <- w + lr rho (c - w) - lr g, where v <- mu v + g takes the place of g if there is momentum."""
    gradient, centre = reads
    if momentum:
        gradient = writes[1].mul_(momentum).add_(gradient)
    writes[0].lerp_(centre, lr * rho).add_(gradient, alpha=-lr)


def elastic_centre(
    reads: list[torch.Tensor], writes: list[torch.Tensor], *, lr: float, rho: float, terms: float = 1.0
) -> None:
    """c <- c + lr rho (sum - terms c)."""
    centre = writes[0]
    if terms == 1:
        centre.lerp_(reads[0], lr * rho)
    else:
        centre.add_(torch.sub(reads[0], centre, alpha=terms), alpha=lr * rho)


def elastic_difference(reads: list[torch.Tensor], writes: list[torch.Tensor], *, lr: float, rho: float) -> None:
    """d = lr rho (w - c)."""
    torch.sub(*reads, out=writes[0]).mul_(lr * rho)


def sgd_difference(reads: list[torch.Tensor], writes: list[torch.Tensor], *, lr: float) -> None:
    """d = -lr g."""
    torch.mul(reads[0], -lr, out=writes[0])


def encoder(select: Select) -> Callable[..., None]:
    """The kernel of a compressor that selects, as `kernels/_encode.py` has it."""

    def encode(reads: list[torch.Tensor], writes: list[torch.Tensor], *, turn: int) -> None:
        """Send what is selected; the others stay in the residual, if there is one."""
        values, indices, *residual = writes
        source = residual[0].add_(reads[0]) if residual else reads[0]
        k = min(len(values), len(source))
        chosen = select(source, k, turn=turn)
        indices[:k], indices[k:] = chosen, 0
        values[:k], values[k:] = source[chosen], 0
        if residual:
            source[chosen] = 0

    return encode


def decode_sum(reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
    """The sum of sparse messages; equal indices add up."""
    values, indices = reads
    writes[0].zero_().index_add_(0, indices.long(), values)


# On a GPU the host waits for the norm, as torch's GradScaler does: once per turn, since the updates follow one another.
OF_PARTS = {f"{update.__name__}{UNSCALED}": _unscaled.guarded(update) for update in (sgd, adam, adamw)}
OF_UPDATES = (sgd, sgd_scaled, adam, adamw, lars, lars_ratios, lamb, lamb_ratios, average, outer_nesterov)
OF_EXCHANGES = (elastic_worker, elastic_centre, elastic_difference, sgd_difference)
OWN = (*OF_UPDATES, *OF_EXCHANGES, cast, norm, squares, decode_sum, powersgd_left, powersgd_right, powersgd_decode)
EXECUTED: dict[str, Callable[..., None]] = {
    **{name: kernel.compute for name, kernel in KERNELS.items()},
    **{kernel.__name__: kernel for kernel in OWN},
    **OF_PARTS,
    **{f"{ENCODE}{name}": encoder(selection.get(name)) for name in compressors.selecting()},
    **coding.kernels(),
}

"""Adam and AdamW for torch: each means what its namesake in `gradsync.kernels` means, with less memory on the way."""

from __future__ import annotations

import torch

from gradsync.kernels import _moments
from gradsync.kernels._update import NORM_FLOOR

ELEMENTS = 1 << 16  # stepped at once on a processor, so that what is computed on the way stays in its cache


def adam(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    turn: int = 0,
) -> None:
    """As its namesake."""
    gradient, factor = scaled(reads, scale, clip)
    rates = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    _step((gradient, *writes), factor, **rates, added=weight_decay, turn=turn)


def adamw(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    clip: float = 0.0,
    turn: int = 0,
) -> None:
    """As its namesake."""
    gradient, factor = scaled(reads, scale, clip)
    rates = {"lr": lr, "beta1": beta1, "beta2": beta2, "eps": eps}
    _step((gradient, *writes), factor, **rates, taken=lr * weight_decay, turn=turn)


def scaled(reads: list[torch.Tensor], scale: float, clip: float) -> tuple[torch.Tensor, float]:
    """The gradient and what it is yet to be multiplied with: the scale, and what shortens it to the norm `clip`.

    A GPU is not asked for the norm, for which the host would have to wait: it takes memory for another gradient.
    """
    gradient = reads[0]
    if not clip:
        return gradient, scale
    if gradient.device.type == "cpu":
        return gradient, scale * float(shrunk(reads[1][0], scale, clip))
    return scaled_unread(reads, scale, clip), 1.0


def scaled_unread(reads: list[torch.Tensor], scale: float, clip: float) -> torch.Tensor:
    """The gradient, scaled and clipped, without a look at its norm."""
    return reads[0] * (shrunk(reads[1][0], scale, clip) * scale)


def shrunk(norm: torch.Tensor, scale: torch.Tensor | float, clip: float) -> torch.Tensor:
    """The factor that shortens a gradient whose scaled norm is longer than `clip` to that length."""
    return (clip / (norm * scale + NORM_FLOOR)).clamp(max=1.0)


def _step(
    operands: tuple[torch.Tensor, ...],
    factor: float,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    added: float = 0.0,
    taken: float = 0.0,
    turn: int,
) -> None:
    """`operands`: gradient, parameter, first and second moment; a gradient counts `factor` times.

    The decay is `added` to the gradient, or a share `taken` of the parameters. A processor goes part by part.
    """
    size, root = _moments.rates(lr, beta1, beta2, turn)
    at_once = ELEMENTS if operands[0].device.type == "cpu" else max(1, len(operands[0]))
    for gradient, parameter, first, second in zip(*(each.split(at_once) for each in operands), strict=True):
        if added:
            gradient = torch.mul(gradient, factor).add_(parameter, alpha=added)
        weight = 1.0 if added else factor
        first.mul_(beta1).add_(gradient, alpha=weight * (1 - beta1))
        second.mul_(beta2).addcmul_(gradient, gradient, value=weight * weight * (1 - beta2))
        if taken:
            parameter.mul_(1 - taken)
        parameter.addcdiv_(first, second.sqrt().div_(root).add_(eps), value=-size)

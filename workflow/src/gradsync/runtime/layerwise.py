"""LARS and LAMB for torch: each kernel means what its namesake in `gradsync.kernels` means, with less memory.

The ratios of tensors are numbers on a processor. A GPU is not asked for them, for which the host would have to wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradsync.kernels import _layers, _moments
from gradsync.kernels import lamb_ratios as of_lamb
from gradsync.kernels import lars_ratios as of_lars
from gradsync.runtime.adam import ELEMENTS
from gradsync.runtime.norms import length

Rate = float | torch.Tensor


def lars_ratios(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    trust: float,
    weight_decay: float = 0.0,
    eps: float = of_lars.SMALLEST,
    scale: float,
) -> None:
    """trust |w| / (|g| + decay |w| + eps) of each tensor."""
    if not len(writes[0]):  # all tensors are other ranks'
        return
    norms = torch.stack([length(array, writes[0].dtype) for array in reads])
    size, steepness = norms[:: of_lars.DEALT], norms[1 :: of_lars.DEALT] * scale
    _ratios(writes[0], size, steepness, trust * size / (steepness + weight_decay * size + eps))


def lamb_ratios(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    turn: int = 0,
) -> None:
    """|w| / |u| of each tensor, without memory for u: a processor goes part by part."""
    (ratios,) = writes
    rates = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    squares = ratios.new_zeros(2, len(ratios))
    for number in range(len(ratios)):
        operands = reads[of_lamb.DEALT * number : of_lamb.DEALT * (number + 1)]
        for parameter, gradient, first, second in _parts(operands):
            step, _, _ = of_lamb.direction(gradient * scale, parameter, first, second, **rates, turn=turn)
            for place, array in enumerate((parameter, step)):
                squares[place, number] += torch.linalg.vector_norm(array, dtype=ratios.dtype) ** 2
    size, moved_by = squares.sqrt_()
    _ratios(ratios, size, moved_by, size / moved_by)


def _ratios(target: torch.Tensor, size: torch.Tensor, other: torch.Tensor, ratios: torch.Tensor) -> None:
    """The ratios of tensors of which neither norm is 0; 1 for the others."""
    target.copy_(torch.where((size > 0) & (other > 0), ratios, 1.0))


def lars(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    scale: float,
) -> None:
    """v <- mu v + rate (g + decay w), w <- w - v, tensor by tensor."""
    rates = lr * torch.cat(reads[1 :: _layers.READS])
    for rate, (gradient, _, (parameter, *kept)) in zip(
        _each(rates, writes[0]), _layers.groups(reads, writes), strict=True
    ):
        if kept:
            _add(kept[0].mul_(momentum), gradient, rate, scale)
            if weight_decay:
                _add(kept[0], parameter, rate, weight_decay)
            parameter.sub_(kept[0])
        else:
            if weight_decay:
                parameter.mul_(1 - rate * weight_decay)
            _add(parameter, gradient, rate, -scale)


def lamb(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-6,
    weight_decay: float = 0.0,
    scale: float = 1.0,
    turn: int = 0,
) -> None:
    """w <- w - lr ratio u, tensor by tensor."""
    rates = lr * torch.cat(reads[1 :: _layers.READS])
    unbias, root = _moments.rates(1.0, beta1, beta2, turn)
    for rate, (gradient, _, state) in zip(_each(rates, writes[0]), _layers.groups(reads, writes), strict=True):
        for part, parameter, first, second in _parts([gradient, *state]):
            first.mul_(beta1).add_(part, alpha=scale * (1 - beta1))
            second.mul_(beta2).addcmul_(part, part, value=scale * scale * (1 - beta2))
            step = (first / second.sqrt().div_(root).add_(eps)).mul_(unbias)
            if weight_decay:
                step.add_(parameter, alpha=weight_decay)
            _add(parameter, step, rate, -1.0)


def _each(rates: torch.Tensor, like: torch.Tensor) -> Iterator[Rate]:
    """The rate of each tensor."""
    yield from rates.tolist() if rates.device.type == "cpu" else rates.to(like.dtype)


def _add(target: torch.Tensor, value: torch.Tensor, rate: Rate, factor: float) -> None:
    """target += factor * rate * value."""
    if isinstance(rate, torch.Tensor):
        target.addcmul_(value, rate, value=factor)
    else:
        target.add_(value, alpha=rate * factor)


def _parts(operands: list[torch.Tensor]) -> Iterator[tuple[torch.Tensor, ...]]:
    """Operands part by part on a processor, so that what is computed on the way stays in its cache; else whole."""
    at_once = ELEMENTS if operands[0].device.type == "cpu" else max(1, len(operands[0]))
    yield from zip(*(each.split(at_once) for each in operands), strict=True)

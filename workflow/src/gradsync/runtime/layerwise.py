"""LARS and LAMB for torch: each kernel means what its namesake in `gradsync.kernels` means, with less memory.

The rates of tensors are numbers on a processor. A GPU is not asked for them, for which the host would have to wait.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradsync.kernels import _layers, _moments
from gradsync.kernels import lamb_norms as of_norms
from gradsync.kernels import lars as of_lars
from gradsync.runtime.adam import ELEMENTS

Rate = float | torch.Tensor


def lars(
    reads: list[torch.Tensor],
    writes: list[torch.Tensor],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    trust: float,
    eps: float = of_lars.SMALLEST,
    scale: float,
) -> None:
    """v <- mu v + rate (g + decay w), w <- w - v, tensor by tensor."""
    size, steepness = _norms(reads)
    steepness = steepness * scale
    rates = torch.where((size > 0) & (steepness > 0), lr * trust * size / (steepness + weight_decay * size + eps), lr)
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


def lamb_norms(
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
    """|w| and |u| of each tensor, without memory for u: a processor goes part by part."""
    (norms,) = writes
    rates = {"beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
    for number in range(len(reads) // of_norms.READS):
        operands = reads[of_norms.READS * number : of_norms.READS * (number + 1)]
        squares = torch.zeros_like(norms[:2])
        for parameter, gradient, first, second in _parts(operands):
            step, _, _ = of_norms.direction(gradient * scale, parameter, first, second, **rates, turn=turn)
            for place, array in enumerate((parameter, step)):
                squares[place] += torch.linalg.vector_norm(array, dtype=norms.dtype) ** 2
        norms[2 * number : 2 * number + 2] = squares.sqrt_()


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
    """w <- w - lr |w| / |u| u, tensor by tensor."""
    size, length = _norms(reads)
    rates = lr * torch.where((size > 0) & (length > 0), size / length, 1.0)
    unbias, root = _moments.rates(1.0, beta1, beta2, turn)
    for rate, (gradient, _, state) in zip(_each(rates, writes[0]), _layers.groups(reads, writes), strict=True):
        for part, parameter, first, second in _parts([gradient, *state]):
            first.mul_(beta1).add_(part, alpha=scale * (1 - beta1))
            second.mul_(beta2).addcmul_(part, part, value=scale * scale * (1 - beta2))
            step = (first / second.sqrt().div_(root).add_(eps)).mul_(unbias)
            if weight_decay:
                step.add_(parameter, alpha=weight_decay)
            _add(parameter, step, rate, -1.0)


def _norms(reads: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Both norms of all tensors.  # (tensors,), (tensors,)"""
    first, second = torch.stack(reads[1 :: _layers.READS]).unbind(1)
    return first, second


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

"""Classes of optimizers by name: torch.optim's, and LARS and LAMB, of which it has none.

They are written from the papers, tensor by tensor, and share no code with the kernels that plans run: peers train with
them, and tests hold the kernels against them. A tensor that is sharded (FSDP2) has the norm of all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch.optim import Optimizer

from gradsync.runtime.distributed_tensors import is_distributed


class LARS(Optimizer):
    """You, Gitman and Ginsburg, 2017, Algorithm 1; see `optimizers/lars.py`."""

    def __init__(self, params: Any, *, lr: float, momentum: float, weight_decay: float, trust: float, eps: float):
        settings = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust, "eps": eps}
        super().__init__(params, settings)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        loss = _evaluated(closure)
        for group in self.param_groups:
            for parameter in (each for each in group["params"] if each.grad is not None):
                size, steepness = _norm(parameter), _norm(parameter.grad)
                local = group["trust"] * size / (steepness + group["weight_decay"] * size + group["eps"])
                rate = group["lr"] * torch.where((size > 0) & (steepness > 0), local, 1.0)
                step = (parameter.grad + group["weight_decay"] * parameter) * rate
                if group["momentum"]:
                    state = self.state[parameter]
                    if "momentum_buffer" in state:
                        step = state["momentum_buffer"].mul_(group["momentum"]).add_(step)
                    else:
                        state["momentum_buffer"] = step
                parameter.sub_(step)
        return loss


class LAMB(Optimizer):
    """You et al., ICLR 2020, Algorithm 2, with the bias of moments taken out; see `optimizers/lamb.py`."""

    def __init__(self, params: Any, *, lr: float, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters that have a gradient."""
        loss = _evaluated(closure)
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for parameter in (each for each in group["params"] if each.grad is not None):
                state = self.state[parameter]
                if not state:
                    state["step"] = torch.tensor(0.0)
                    state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["step"] += 1
                turn = int(state["step"])
                mean = state["exp_avg"].lerp_(parameter.grad, 1 - beta1) / (1 - beta1**turn)
                square = state["exp_avg_sq"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
                step = mean / ((square / (1 - beta2**turn)).sqrt() + group["eps"]) + group["weight_decay"] * parameter
                size, length = _norm(parameter), _norm(step)
                ratio = torch.where((size > 0) & (length > 0), size / length, 1.0)
                parameter.sub_(step * (group["lr"] * ratio))
        return loss


OWN: dict[str, type[Optimizer]] = {"LARS": LARS, "LAMB": LAMB}


def named(name: str) -> type[Optimizer]:
    """The class of that name."""
    return OWN[name] if name in OWN else cast(type[Optimizer], getattr(torch.optim, name))


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    """The norm of the whole tensor, also of one of which each rank has a part. Collective then."""
    length = torch.linalg.vector_norm(tensor)
    return length.full_tensor() if is_distributed(length) else length


def _evaluated(closure: Callable[[], float] | None) -> float | None:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()

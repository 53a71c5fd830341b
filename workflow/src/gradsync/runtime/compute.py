"""Forward and backward of a torch model as the executor's compute, and as the oracle's gradient.

Parameters live in the plan's flat buffer (the model's tensors are views of it); gradients are handed over as soon as
autograd has accumulated them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.runtime.step import Step

Sample = Callable[[int], tuple[torch.Tensor, torch.Tensor]]


def bind(model: nn.Module, plan: Plan, flat: torch.Tensor) -> None:
    """Move the model's parameters into `flat` (mutated: it takes their values), where the plan lays them.

    Raises RunError where model and plan name different tensors.
    """
    parameters = dict(model.named_parameters())
    unknown = set(parameters) ^ {tensor.name for tensor in plan.tensors}
    if unknown:
        raise RunError(f"plan {plan.name!r} is not for this model: {sorted(unknown)[0]!r} is only in one of them")
    for tensor in plan.tensors:
        parameter = parameters[tensor.name]
        place = flat[tensor.start : tensor.stop]
        if parameter.numel() != len(place):
            raise RunError(
                f"plan {plan.name!r}: {tensor.name!r} has {len(place)} elements, the model's has {parameter.numel()}"
            )
        place.copy_(parameter.detach().reshape(-1))
        parameter.data = place.view(parameter.shape)


class ModelCompute:
    """A model, its loss and its samples; call it as the executor's `Compute`.

    `losses` holds the loss of each turn. Removing the hooks again is `close`.
    """

    def __init__(self, model: nn.Module, sample: Sample):
        self.model, self.sample = model, sample
        self.losses: list[float] = []
        self.step: Step | None = None
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(name))
            for name, parameter in model.named_parameters()
        ]

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def produced(parameter: torch.Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            if self.step is not None and gradient is not None:
                self.step.ready(name, gradient)

        return produced

    def __call__(self, turn: int, step: Step) -> None:
        """Forward and backward of one turn."""
        images, labels = self.sample(turn)
        self.step = step
        step.need(None)
        loss = nn.functional.cross_entropy(self.model(images), labels)
        step.backward()
        loss.backward()
        self.step = None
        self.losses.append(float(loss.detach()))

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self.hooks:
            hook.remove()


def oracle_gradient(
    model: nn.Module, plan: Plan, sample: Callable[[int, int], tuple[torch.Tensor, torch.Tensor]]
) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """The oracle's gradient function on a model of its own; `sample(rank, turn)` gives that shard."""
    dtype = next(model.parameters()).dtype
    flat = torch.zeros(plan.tensors[-1].stop, dtype=dtype)
    bind(model, plan, flat)
    parameters = dict(model.named_parameters())

    def gradient(rank: int, turn: int, values: np.ndarray) -> np.ndarray:
        flat.copy_(torch.from_numpy(values))
        images, labels = sample(rank, turn)
        loss = nn.functional.cross_entropy(model(images), labels)
        found = torch.autograd.grad(loss, [parameters[tensor.name] for tensor in plan.tensors], allow_unused=True)
        parts = [
            np.zeros(tensor.stop - tensor.start, values.dtype) if part is None else part.reshape(-1).numpy()
            for tensor, part in zip(plan.tensors, found, strict=True)
        ]
        return np.concatenate(parts)

    return gradient

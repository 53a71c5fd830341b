"""Forward and backward of a torch model as the executor's compute, and as the oracle's gradient.

Parameters live in the plan's flat buffer (the model's tensors are views of it), batch-norm statistics in another;
gradients are handed over as soon as autograd has accumulated them. What is random in a model (dropout) is a function
of seed, rank and number alone, so that a resumed run, the oracle and every scheme see the same. The number is that of
the pass, counted over all turns: with one micro-batch per turn it is the turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from gradsync.errors import RunError
from gradsync.plan import Plan
from gradsync.runtime.forward_order import forward_order
from gradsync.runtime.losses import Losses
from gradsync.runtime.replay import Replayed
from gradsync.runtime.step import Step

Sample = Callable[[int], tuple[torch.Tensor, torch.Tensor]]
"""number of the pass -> this rank's images and labels."""
Loss = Callable[..., torch.Tensor]
"""(output, labels) -> scalar."""
PRECISIONS = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
FIRST_LOSS_SCALE = 65536.0  # torch's GradScaler's
SMALLEST_LOSS_SCALE = 1e-4  # by then many steps in a row were skipped


def bind(model: nn.Module, plan: Plan, flat: torch.Tensor) -> None:
    """Move the parameters that are trained into `flat` (mutated: it takes their values), where the plan lays them.

    Raises RunError if model and plan name different tensors.
    """
    parameters = {name: each for name, each in model.named_parameters() if each.requires_grad}
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


def begin_centre(plan: Plan, buffers: Mapping[str, torch.Tensor]) -> None:
    """Set centres, and parameters that all ranks share, to the rank's parameters: a training begins with all equal."""
    parameter = buffers[plan.holding("parameter") or ""]
    for buffer in plan.buffers:
        if (buffer.role == "centre" or (buffer.shared and buffer.role == "parameter")) and (
            buffer.elements == len(parameter)
        ):
            buffers[buffer.name].copy_(parameter)


def statistics(model: nn.Module) -> list[torch.Tensor]:
    """The model's floating-point buffers (batch-norm means and variances), in the order in which they are laid."""
    return [buffer for buffer in model.buffers() if buffer.is_floating_point()]


def bind_statistics(model: nn.Module, flat: torch.Tensor) -> None:
    """Move the model's statistics into `flat` (mutated); raises RunError if there are more or fewer."""
    buffers = statistics(model)
    if sum(buffer.numel() for buffer in buffers) != len(flat):
        raise RunError(
            f"the plan has {len(flat)} elements of batch-norm statistics, the model "
            f"{sum(buffer.numel() for buffer in buffers)}: measure the layers and plan again for this model"
        )
    position = 0
    for buffer in buffers:
        place = flat[position : position + buffer.numel()]
        place.copy_(buffer.reshape(-1))
        buffer.data = place.view(buffer.shape)
        position += buffer.numel()


@dataclass(frozen=True)
class Forward:
    """A model's forward pass and loss as every contender runs it: same precision, same random numbers."""

    model: nn.Module
    loss: Loss
    rank: int
    seed: int = 0
    precision: str = "float32"

    def __call__(self, number: int, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of one batch, on the graph; mutates torch's random state and the model's statistics."""
        torch.manual_seed(((self.seed * 1_000_003 + number) * 65_537 + self.rank) % 2**63)
        with self._autocast(images.device.type):
            return self.loss(self.model(images), labels)

    def _autocast(self, device: str) -> AbstractContextManager[object]:
        dtype = PRECISIONS[self.precision]
        return nullcontext() if dtype is None else torch.autocast(device, dtype=dtype)


class ModelCompute:
    """A model and its samples; call it as the executor's `Compute`.

    `losses` holds the loss of each turn, of `passes` micro-batches or `iterations` of the rank's own. `scaler` (loss
    scale first) is the plan's, for float16; it begins with torch's scale divided by the passes, as their sum is sent.
    Raises RunError for a loss that is not finite. If work is `queued` no turn waits for a value: `settle` looks at them
    after a run. If the plan holds back the forward of single layers, the first pass traces when the model needs them,
    and hooks ask for them from then on. Forward and backward take `least_seconds`: the last gradient is held until
    then. `close` removes all hooks again.
    """

    def __init__(
        self,
        forward: Forward,
        sample: Sample,
        *,
        name: str = "",
        scaler: torch.Tensor | None = None,
        queued: bool = False,
        passes: int = 1,
        iterations: int = 1,
        least_seconds: float = 0.0,
    ):
        self.forward, self.sample, self.name, self.scaler = forward, sample, name, scaler
        self.queued, self.iterations, self.least_seconds = queued, iterations, least_seconds
        if scaler is not None and not float(scaler[0]):
            scaler[0] = FIRST_LOSS_SCALE / passes
        self._losses = Losses(forward.rank, name, scaled=scaler is not None, queued=queued, passes=passes)
        self.losses = self._losses.values
        self.step: Step | None = None
        self.turn = 0  # the last one
        self.until, self.left = 0.0, 0  # when the last gradient may come, and how many have yet to
        self.layers: _Layers | None = None  # if the plan holds back their forward
        self.hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(name))
            for name, parameter in forward.model.named_parameters()
            if parameter.requires_grad
        ]

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        def produced(parameter: torch.Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            self.left -= 1
            if not self.left:
                self._hold()
            if self.step is not None and gradient is not None:
                self.step.ready(name, gradient)

        return produced

    def __call__(self, number: int, step: Step) -> None:
        """Forward and backward of one pass."""
        images, labels = self.sample(number)
        self.step, self.turn = step, step.turn
        if None in step.needs:
            step.need(None)
        elif step.needs:
            self.layers = self.layers or _Layers(self.forward, step, number, images, labels)
            self.layers.begin(step)
        self.until, self.left = time.perf_counter() + self.least_seconds, len(self.hooks)
        loss = self.forward(number, images, labels)
        step.backward()
        if self.layers is not None:
            self.layers.end()
        if self.scaler is None:
            loss.backward()
        elif not self.queued:
            self._guard(step.turn)
            (loss * float(self.scaler[0])).backward()
        else:
            (loss * self.scaler[0]).backward()  # its value stays where it is
        self._hold()  # a parameter that is not used has no gradient
        self.step = None
        self._losses.take(step.turn * self.iterations, loss)

    def _hold(self) -> None:
        """Wait until forward and backward have taken as long as they are to."""
        if (left := self.until - time.perf_counter()) > 0:
            time.sleep(left)

    def settle(self) -> None:
        """Look, after a run, at the values that no turn waited for. Raises RunError as a turn does."""
        self._losses.read()
        if self.scaler is not None and self.queued:
            self._guard(self.turn)

    def _guard(self, turn: int) -> None:
        assert self.scaler is not None
        if float(self.scaler[0]) < SMALLEST_LOSS_SCALE:
            raise RunError(
                f"rank {self.forward.rank}, {self.name!r}: gradients are not finite at any loss scale, iteration "
                f"{turn}: lower the learning rate"
            )

    def close(self) -> None:
        """Take the hooks off the model."""
        for hook in self.hooks:
            hook.remove()
        if self.layers is not None:
            self.layers.watch.close()


class _Layers:
    """Asks for the layers of a plan while forward runs: in the plan's order, which may be another than the model's.

    If the model needs a layer, all that the plan has before it are asked for, too.
    """

    def __init__(self, forward: Forward, step: Step, number: int, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.model, self.layers = forward.model, list(step.needs)
        self.place = {layer: place for place, layer in enumerate(self.layers)}
        self.asked = 0  # of `layers`, in this pass
        self.step: Step | None = None  # the model runs without one in evaluation
        order = forward_order(forward.model, lambda model: replace(forward, model=model)(number, images, labels))
        self.watch = order.among(name for name in self.place if name is not None).watch(forward.model, self._need)

    def begin(self, step: Step) -> None:
        """Forward of a pass begins."""
        self.step, self.asked = step, 0
        self.watch.begin()

    def end(self) -> None:
        """Forward is over: nothing that runs the model now needs anything."""
        self.step = None

    def _need(self, names: tuple[str, ...]) -> None:
        if self.step is None:
            return
        first, self.asked = self.asked, max(self.asked, *(1 + self.place[name] for name in names))
        waits = [self.step.need(layer) for layer in self.layers[first : self.asked]]
        if any(waits) and isinstance(self.model, Replayed):
            self.model.hold()


def oracle_gradient(
    forward: Callable[[int], Forward], plan: Plan, sample: Callable[[int, int], tuple[torch.Tensor, torch.Tensor]]
) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """The oracle's gradient function on a model of its own.

    `forward(rank)` gives that rank's forward pass, all on one model (mutated), `sample(rank, number)` its shard.
    """
    model = forward(0).model
    dtype = next(model.parameters()).dtype
    flat = torch.zeros(plan.tensors[-1].stop, dtype=dtype, device=next(model.parameters()).device)
    bind(model, plan, flat)
    parameters = dict(model.named_parameters())

    def gradient(rank: int, number: int, values: np.ndarray) -> np.ndarray:
        flat.copy_(torch.from_numpy(values))
        loss = forward(rank)(number, *sample(rank, number))
        gradients = torch.autograd.grad(loss, [parameters[tensor.name] for tensor in plan.tensors], allow_unused=True)
        parts = [
            np.zeros(tensor.stop - tensor.start, values.dtype) if part is None else part.reshape(-1).cpu().numpy()
            for tensor, part in zip(plan.tensors, gradients, strict=True)
        ]
        return np.concatenate(parts)

    return gradient

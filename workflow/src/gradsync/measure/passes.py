"""Forward, backward and update of one rank, with marks: every measurement of computation runs them.

As in training, parameters are views of one flat buffer, each gradient is copied once into its place in another buffer
when autograd has produced it, the samples of an iteration are drawn from a larger set, and the update is in place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from gradsync.runtime import models
from gradsync.runtime.data import synthetic
from gradsync.runtime.data.samples import Wanted
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.forward_order import Watch, by_parameter, forward_order
from gradsync.runtime.kernels import EXECUTED
from gradsync.runtime.models import own

SAMPLES = 1024  # to draw from; some data sets of the quick configuration are of that order
MOST_SAMPLE_BYTES = 64 * 1024 * 1024
SGD = {"lr": 0.01, "momentum": 0.9}


class Times(NamedTuple):
    """Seconds of one iteration; `backward` by gradient, in the order in which autograd produced them.

    `ahead`: those of forward by parameter, in the order in which forward needs them (empty if nobody watches it).
    """

    update: float
    forward: float
    backward: dict[str, float]
    ahead: dict[str, float]


class Marks(NamedTuple):
    """The marks of one iteration: its start, the ends of update and forward, of each gradient, and each need.

    A need is the moment at which forward first needs the parameters of these names.
    """

    start: Any
    updated: Any
    middle: Any
    gradients: list[tuple[str, Any]]
    needs: list[tuple[tuple[str, ...], Any]]


class _Drawn:
    """Random samples of a model of the registry, of which each iteration draws a batch."""

    def __init__(self, name: str, size: int | None, batch: int, seed: int):
        self.batch, self.random = batch, np.random.default_rng(seed)
        self.images, self.labels = _samples(name, models.shape(name, size), batch, seed)
        self.of_labels = models.get(name).loss

    def example(self, device: Device) -> Any:
        """Inputs of an iteration."""
        return device.put(self.images[: self.batch])

    def outputs(self, model: nn.Module, inputs: Any) -> Any:
        return model(inputs)

    def loss(self, model: nn.Module, device: Device) -> torch.Tensor:
        """The loss of the next batch."""
        chosen = torch.from_numpy(self.random.permutation(len(self.labels))[: self.batch])
        images, labels = device.put(self.images[chosen]), device.put(self.labels[chosen])
        return self.of_labels(model(images), labels)

    @property
    def size(self) -> int:
        """The side of an image in pixels, the length of a text."""
        return int(self.images.shape[-1])


class _Given:
    """The batch that a model of one's own brings, the same in each iteration."""

    size = None

    def __init__(self, brought: own.Own, device: Device):
        self.brought, self.inputs, self.batch = brought, own.put(brought.inputs, device), brought.batch

    def example(self, device: Device) -> Any:
        """They are on the device."""
        return self.inputs

    def outputs(self, model: nn.Module, inputs: Any) -> Any:
        return self.brought.outputs(model, inputs)

    def loss(self, model: nn.Module, device: Device) -> torch.Tensor:
        return self.brought.loss_of(self.brought.outputs(model, self.inputs))


def _samples(name: str, shape: tuple[int, ...], batch: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels to draw batches from."""
    model = models.get(name)
    count = max(batch, min(SAMPLES, MOST_SAMPLE_BYTES // (4 * int(np.prod(shape)))))
    if model.takes != models.IMAGES:
        wanted = Wanted(shape, model.classes, batch, seed, Path(), model.takes)
        return synthetic.samples(wanted, count).batch(torch.arange(count), 0)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, *shape, generator=generator), torch.randint(model.classes, (count,), generator=generator)


class Pass:
    """A model on random samples of its own; `flat` (parameters,) holds its gradients, which a caller may sum.

    On a GPU a mark is reached when the work queued before it is done, and iterations are queued ahead, as in training.
    """

    def __init__(self, name: str, size: int | None, batch: int, seed: int = 0, device: Device = PROCESSOR):
        self.device = device
        self.samples: _Drawn | _Given
        if own.is_own(name):
            brought = own.load(name, seed)
            self.model = brought.module.to(device.torch_device).train()
            self.samples = _Given(brought, device)
        else:
            self.model = models.build(name, seed).to(device.torch_device).train()
            self.samples = _Drawn(name, size, batch, seed)
        self.parameters = {key: each for key, each in self.model.named_parameters() if each.requires_grad}
        elements = sum(parameter.numel() for parameter in self.parameters.values())
        self.flat, self.weights, self.velocity = (torch.zeros(elements, device=device.torch_device) for _ in range(3))
        self.norm_value = torch.zeros(1, device=device.torch_device)
        self.gradients: list[tuple[str, Any]] = []
        self.needs: list[tuple[tuple[str, ...], Any]] = []
        self.forward: Watch | None = None
        position = 0
        for key, parameter in self.parameters.items():
            place = slice(position, position + parameter.numel())
            position = place.stop
            self.weights[place].copy_(parameter.detach().reshape(-1))
            parameter.data = self.weights[place].view(parameter.shape)
            parameter.register_post_accumulate_grad_hook(self._hook(key, self.flat[place]))

    def _hook(self, key: str, place: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def take(parameter: torch.Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                place.copy_(gradient.reshape(-1))
            self.gradients.append((key, self.device.mark()))

        return take

    def watch(self) -> None:
        """From now on, mark in each pass when forward first needs each parameter."""
        inputs = self.samples.example(self.device)
        order = forward_order(self.model, lambda model: self.samples.outputs(model, inputs))
        self.forward = order.among(self.parameters).watch(
            self.model, lambda names: self.needs.append((names, self.device.mark()))
        )

    def __call__(self, scale: float = 1.0) -> Marks:
        """One iteration, update first: ranks are together there, since it waits for the last message.

        `scale` is 1/N after a sum over N ranks. Drawing the samples counts as forward.
        """
        start = self.device.mark()
        EXECUTED["sgd"]([self.flat], [self.weights, self.velocity], scale=scale, **SGD)
        updated = self.device.mark()
        middle = self.compute()
        return Marks(start, updated, middle, list(self.gradients), list(self.needs))

    def times(self, marks: Marks) -> Times:
        """What an iteration took, once the device has done it (`Device.synchronize`)."""
        seconds = self.device.seconds
        before = [marks.middle, *(mark for _, mark in marks.gradients)]
        backward = {key: seconds(last, mark) for last, (key, mark) in zip(before, marks.gradients, strict=False)}
        ahead = by_parameter(marks.needs, marks.updated, marks.middle, seconds)
        return Times(seconds(marks.start, marks.updated), seconds(marks.updated, marks.middle), backward, ahead)

    def norm(self) -> tuple[Any, Any]:
        """The marks before and after the norm of all gradients, as an update that clips needs it."""
        start = self.device.mark()
        EXECUTED["norm"]([self.flat], [self.norm_value])
        return start, self.device.mark()

    def compute(self) -> Any:
        """Forward and backward; returns the mark between them and leaves the others in `gradients` and `needs`."""
        self.gradients.clear()
        self.needs.clear()
        if self.forward is not None:
            self.forward.begin()
        loss = self.samples.loss(self.model, self.device)
        middle = self.device.mark()
        loss.backward()
        return middle

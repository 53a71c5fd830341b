"""Forward, backward and update of one rank, stamped: what every measurement of computation runs.

As in training, parameters are views of one flat buffer, each gradient is copied once into its place in another when
autograd has produced it, the samples of an iteration are drawn from a larger set, and the update is in place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from gradsync.runtime import models
from gradsync.runtime.kernels import EXECUTED

SAMPLES = 1024  # to draw from; some data sets of the quick configuration are of that order
MOST_SAMPLE_BYTES = 64 * 1024 * 1024
SGD = {"lr": 0.01, "momentum": 0.9}


class Times(NamedTuple):
    """Seconds of one iteration; `backward` by gradient, in the order in which autograd produced them."""

    update: float
    forward: float
    backward: dict[str, float]


class Pass:
    """A model on random samples of its own; `flat` (parameters,) holds its gradients, to be summed by who wants to.

    On a GPU stamps are CUDA events, so that queued work is timed where it runs.
    """

    def __init__(self, name: str, size: int | None, batch: int, seed: int = 0):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = models.build(name, seed).to(self.device).train()
        self.loss = models.get(name).loss
        shape = models.shape(name, size)
        count = max(batch, min(SAMPLES, MOST_SAMPLE_BYTES // (4 * int(np.prod(shape)))))
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randn(count, *shape, generator=generator)
        self.labels = torch.randint(models.get(name).classes, (count,), generator=generator)
        self.batch, self.random = batch, np.random.default_rng(seed)
        self.parameters = dict(self.model.named_parameters())
        elements = sum(parameter.numel() for parameter in self.parameters.values())
        self.flat, self.weights, self.velocity = (torch.zeros(elements, device=self.device) for _ in range(3))
        self.stamps: list[tuple[str, Any]] = []
        position = 0
        for key, parameter in self.parameters.items():
            place = slice(position, position + parameter.numel())
            position = place.stop
            self.weights[place].copy_(parameter.detach().reshape(-1))
            parameter.data = self.weights[place].view(parameter.shape)
            parameter.register_post_accumulate_grad_hook(self._hook(key, self.flat[place]))

    def _hook(self, key: str, place: torch.Tensor) -> Callable[[torch.Tensor], None]:
        def produced(parameter: torch.Tensor) -> None:
            gradient, parameter.grad = parameter.grad, None
            if gradient is not None:
                place.copy_(gradient.reshape(-1))
            self.stamps.append((key, self._now()))

        return produced

    def _now(self) -> Any:
        if self.device.type == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _seconds(self, start: Any, end: Any) -> float:
        return float(end - start) if self.device.type == "cpu" else start.elapsed_time(end) / 1e3

    def __call__(self, scale: float = 1.0) -> Times:
        """One iteration, update first: ranks are together there, since it waits for the last message.

        `scale` is 1/N after a sum over N ranks. Drawing the samples counts as forward.
        """
        start = self._now()
        EXECUTED["sgd"]([self.flat], [self.weights, self.velocity], scale=scale, **SGD)
        updated = self._now()
        middle = self.compute()
        before = [middle, *(stamp for _, stamp in self.stamps)]
        backward = {key: self._seconds(last, stamp) for last, (key, stamp) in zip(before, self.stamps, strict=False)}
        return Times(self._seconds(start, updated), self._seconds(updated, middle), backward)

    def compute(self) -> Any:
        """Forward and backward; gives the stamp between them and leaves those of the gradients in `stamps`."""
        self.stamps.clear()
        chosen = torch.from_numpy(self.random.permutation(len(self.labels))[: self.batch])
        images, labels = self.images[chosen].to(self.device), self.labels[chosen].to(self.device)
        loss = self.loss(self.model(images), labels)
        middle = self._now()
        loss.backward()
        float(loss.detach())  # training looks at it, which waits for a GPU
        return middle

"""Measure forward and backward seconds a gradient tensor, in the order in which autograd really produces gradients."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from gradsync.kernels import sgd
from gradsync.results import machine
from gradsync.runtime import models
from gradsync.workload import Layer, Workload

WARM_UP = 2


def measure(name: str, batch: int, iterations: int, seed: int = 0) -> Workload:
    """The workload of one rank of this machine; medians over `iterations` after a warm-up.

    Every gradient is copied once when it is produced, as it is in training. Gradients that autograd never produces
    come last, with no backward time of their own.
    """
    model = models.build(name, seed)
    spec = models.MODELS[name]
    images = torch.randn(batch, *spec.shape)
    labels = torch.randint(spec.classes, (batch,))
    parameters = dict(model.named_parameters())
    flat = torch.zeros(sum(p.numel() for p in parameters.values()))
    places, position = {}, 0
    for key, parameter in parameters.items():
        places[key] = flat[position : position + parameter.numel()]
        position += parameter.numel()
    stamps: list[tuple[str, float]] = []

    def hook(key: str) -> Any:
        def produced(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                places[key].copy_(parameter.grad.reshape(-1))
                parameter.grad = None
            stamps.append((key, time.perf_counter()))

        return produced

    for key, parameter in parameters.items():
        parameter.register_post_accumulate_grad_hook(hook(key))
    forward, backward, update = [], [], []
    order: list[str] = []
    velocity, weights = torch.zeros_like(flat), torch.zeros_like(flat)
    for turn in range(iterations + WARM_UP):
        stamps.clear()
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(images), labels)
        middle = time.perf_counter()
        loss.backward()
        end = time.perf_counter()
        sgd([flat], [weights, velocity], lr=0.01, momentum=0.9, scale=0.5)
        updated = time.perf_counter()
        if turn >= WARM_UP:
            order = [key for key, _ in stamps]  # the same in every iteration
            forward.append(middle - start)
            backward.append(np.diff([middle, *(stamp for _, stamp in stamps)]))
            update.append(updated - end)
    seconds = dict(zip(order, np.median(np.array(backward), axis=0), strict=True))
    order += [key for key in parameters if key not in seconds]
    return Workload(
        name=name,
        forward_seconds=float(np.median(forward)),
        update_seconds=float(np.median(update)),
        layers=tuple(
            Layer(
                name=key,
                bytes=parameters[key].numel() * 4,
                elements=parameters[key].numel(),
                backward_seconds=max(0.0, float(seconds.get(key, 0.0))),
            )
            for key in order
        ),
        provenance={
            "measured": f"median of {iterations} iterations, batch {batch}, {torch.get_num_threads()} thread(s)",
            "torch": torch.__version__,
            **machine(),
        },
    )

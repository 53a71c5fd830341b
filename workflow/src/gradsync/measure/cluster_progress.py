"""How long a cluster profile takes: estimated before it starts, and again after each part from what the parts took.

The first estimate of layer times is the arithmetic of the models (counted by torch on tensors without data) over the
speed of a matrix product; it is too low by as much as convolutions are slower. Parts that are done correct it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode

from gradsync.runtime import models

SIDE = {"cpu": 1024, "cuda": 8192}  # of the matrices, elements
PASSES = 3  # forward, and the two products of backward, each as much arithmetic as forward
START = 2.0  # seconds to build a model or make groups, about


class Counted(NamedTuple):
    """A model without data: smallest gradient and all of them in bytes, operations of a forward pass of one sample."""

    smallest: int
    total: int
    operations: int


def count(name: str, size: int | None, batch: int) -> Counted:
    """What a model needs, without allocating it. `size`: pixels of a side, or tokens (None: its own)."""
    model = models.get(name)
    with torch.device("meta"):
        built = model.build()
        inputs = models.blank(name, size, batch)
    bytes_ = [parameter.numel() * parameter.element_size() for parameter in built.parameters()]
    with FlopCounterMode(display=False) as counter:
        built(inputs)
    return Counted(min(bytes_), sum(bytes_), counter.get_total_flops() // batch)


def speed(device: torch.device) -> float:
    """Operations per second of a matrix product on this rank's device."""
    side = SIDE[device.type]
    a = torch.ones(side, side, device=device)

    def seconds() -> float:
        start = time.perf_counter()
        float((a @ a)[0, 0])  # waits for a GPU
        return time.perf_counter() - start

    return 2.0 * side**3 / min(seconds() for _ in range(3))


class Progress:
    """Seconds expected of each part by name; says on stderr what is done and what is left. `kind` groups parts."""

    def __init__(self, expected: Mapping[str, float], kinds: Mapping[str, str]):
        self.expected, self.kinds = dict(expected), kinds
        self.left = dict(expected)
        self.spent: dict[str, list[float]] = {}
        self.started = 0.0

    def remaining(self) -> float:
        """Seconds that what is left takes, about: parts of a kind err alike."""
        total = 0.0
        for name, seconds in self.left.items():
            factors = self.spent.get(self.kinds[name], [])
            total += seconds * (sum(factors) / len(factors) if factors else 1.0)
        return total

    def start(self, name: str, title: str) -> None:
        """A part begins."""
        number = len(self.expected) - len(self.left) + 1
        rest = self.remaining()
        about = f"{rest / 60:.0f} min" if rest > 100 else f"{rest:.0f} s"
        print(f"cluster [{number}/{len(self.expected)}] {title}; about {about} to go", file=sys.stderr, flush=True)
        self.started = time.monotonic()

    def done(self, name: str) -> None:
        """A part ended."""
        expected = self.left.pop(name)
        if expected:
            self.spent.setdefault(self.kinds[name], []).append((time.monotonic() - self.started) / expected)

"""The models that are trained, by name: how to build one and what it eats.

LeNet-5 is the variant of the BML paper: 5 layers, 3.27 M parameters (32 and 64 filters of 5 x 5, 1024 hidden units).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from gradsync.errors import InputError


class LeNet5(nn.Module):
    """Input (batch, 1, 28, 28), output (batch, 10): conv 32, conv 64, dense 1024, dense 10; 3,274,634 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.dense1 = nn.Linear(64 * 7 * 7, 1024)
        self.dense2 = nn.Linear(1024, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv1(x)), 2)
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv2(x)), 2)
        return self.dense2(nn.functional.relu(self.dense1(x.flatten(1))))


def _resnet50() -> nn.Module:
    from gradsync.runtime.torchvision_operators import torchvision

    return torchvision().models.resnet50(weights=None)


@dataclass(frozen=True)
class Model:
    """A model of the registry. `shape` is one input sample, `classes` the width of its output."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int


MODELS: dict[str, Model] = {
    "lenet5": Model(LeNet5, (1, 28, 28), 10),
    "resnet50": Model(_resnet50, (3, 224, 224), 1000),
}


def get(name: str) -> Model:
    """The model of that name; raises InputError that lists the known ones."""
    if name not in MODELS:
        raise InputError(f"model {name!r} does not exist; there are: {', '.join(MODELS)}")
    return MODELS[name]


def build(name: str, seed: int) -> nn.Module:
    """The model with the parameters of that seed; raises InputError for a name that is not there."""
    model = get(name)
    torch.manual_seed(seed)
    return model.build()

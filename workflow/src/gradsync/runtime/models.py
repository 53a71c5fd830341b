"""The models that are trained, by name: how to build one, what it eats and what its loss is.

LeNet-5 is the variant of the BML paper: 5 layers, 3.27 M parameters (32 and 64 filters of 5 x 5, 1024 hidden units).
The others are torchvision's, untrained, with the 1000 outputs of ImageNet whatever they are trained on, so that their
gradients have the sizes that the papers report. A reduced model says in its name by how much it is smaller, for
machines that its full size does not fit on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from gradsync.errors import InputError
from gradsync.runtime import replay
from gradsync.runtime.torchvision_operators import torchvision

AUXILIARY_WEIGHT = 0.3
EIGHTH = 8


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


def vgg19_eighth() -> nn.Module:
    """VGG-19 with an eighth of the channels and of the hidden units, so that a process has 11 MB of gradients.

    All 19 layers, 1000 outputs, input (batch, 3, side, side) from a side of 32; 2,695,472 parameters against
    143,667,240: convolutions have 1/64 of theirs, the first dense layer 1/64, the last one 1/8. As in VGG-19 the first
    dense layer holds most of them.
    """
    vgg = torchvision().models.vgg
    channels = [step if step == "M" else step // EIGHTH for step in vgg.cfgs["E"]]
    model: nn.Module = vgg.VGG(vgg.make_layers(channels))
    hidden = 4096 // EIGHTH
    model.classifier = nn.Sequential(
        *(nn.Linear(512 // EIGHTH * 7 * 7, hidden), nn.ReLU(inplace=True), nn.Dropout()),
        *(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout()),
        nn.Linear(hidden, 1000),
    )
    return model


def auxiliary_cross_entropy(output: Any, labels: torch.Tensor) -> torch.Tensor:
    """Cross entropy of the logits + 0.3 times that of each auxiliary head.

    `output` is torchvision's GoogLeNet in training mode: `logits`, `aux_logits1`, `aux_logits2`.  # each (batch, 1000)
    Source: Szegedy et al., "Going Deeper with Convolutions", CVPR 2015, Section 5.
    """
    loss = nn.functional.cross_entropy
    heads = loss(output.aux_logits1, labels) + loss(output.aux_logits2, labels)
    return loss(output.logits, labels) + AUXILIARY_WEIGHT * heads


@dataclass(frozen=True)
class Model:
    """A model of the registry.

    `shape` is one full-size input sample (channels, height, width), `classes` the width of the output; `loss` takes
    what the model gives in training mode, and labels (batch,). In eval mode every model gives plain logits.
    `smallest` is the smallest side, in pixels, that can be trained on with 2 samples or more a batch, `smallest_alone`
    with 1: batch normalisation needs two values a channel. `fixed` allows no other side than that of `shape`. A
    `reduced` model is a smaller version of another one, measured only where it is named.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, int, int]
    classes: int
    smallest: int
    smallest_alone: int
    fixed: bool = False
    reduced: bool = False
    loss: Callable[[Any, torch.Tensor], torch.Tensor] = nn.functional.cross_entropy


def _untrained(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision().models, name)(weights=None, **options)


MODELS: dict[str, Model] = {
    "lenet5": Model(LeNet5, (1, 28, 28), 10, smallest=28, smallest_alone=28, fixed=True),
    "resnet18": Model(_untrained("resnet18"), (3, 224, 224), 1000, smallest=1, smallest_alone=33),
    "resnet50": Model(_untrained("resnet50"), (3, 224, 224), 1000, smallest=1, smallest_alone=33),
    "vgg19": Model(_untrained("vgg19"), (3, 224, 224), 1000, smallest=32, smallest_alone=32),
    "vgg19_eighth": Model(vgg19_eighth, (3, 224, 224), 1000, smallest=32, smallest_alone=32, reduced=True),
    "googlenet": Model(
        _untrained("googlenet", aux_logits=True, init_weights=True),
        (3, 224, 224),
        1000,
        smallest=15,
        smallest_alone=47,
        loss=auxiliary_cross_entropy,
    ),
}


def get(name: str) -> Model:
    """The model of that name, or `replay:FILE`, a workload of which is replayed (see `replay.py`).

    Raises InputError that lists the known ones.
    """
    if replay.is_replay(name):
        workload = replay.workload_of(name)
        return Model(
            lambda: replay.Replayed(workload), (1, 1, 1), 2, smallest=1, smallest_alone=1, fixed=True, loss=_as_it_is
        )
    if name not in MODELS:
        raise InputError(f"model {name!r} does not exist; there are: {', '.join(MODELS)}")
    return MODELS[name]


def _as_it_is(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return output


def title(name: str) -> str:
    """What results call the model: that of a workload by the workload's name."""
    return replay.workload_of(name).name if replay.is_replay(name) else name


def build(name: str, seed: int) -> nn.Module:
    """The model with the parameters of that seed, which torch's global generator is set to.

    Raises InputError for a name that is not there.
    """
    model = get(name)
    torch.manual_seed(seed)
    return model.build()


def shape(name: str, size: int | None = None, batch: int = 2) -> tuple[int, int, int]:
    """The input (channels, size, size) of that model, trained with `batch` samples a rank; None: its full size.

    Raises InputError where the model does not exist, or takes no input of that size.
    """
    model = get(name)
    channels, full, _ = model.shape
    if size is None:
        return model.shape
    if model.fixed and size != full:
        raise InputError(f"model {name!r} takes no images of {size} x {size}: its size is fixed, {full} x {full}")
    if size < model.smallest:
        raise InputError(f"model {name!r} takes no images of {size} x {size}: the smallest is {model.smallest}")
    if batch == 1 and size < model.smallest_alone:
        raise InputError(
            f"model {name!r} takes no single image of {size} x {size}, batch normalisation needs two values a channel: "
            f"choose a batch of 2 or more, or a size of {model.smallest_alone} or more"
        )
    return channels, size, size

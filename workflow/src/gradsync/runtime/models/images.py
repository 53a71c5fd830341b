"""Models of images.

LeNet-5 is the variant of the BML paper: 5 layers, 3.27 M parameters (32 and 64 filters of 5 x 5, 1024 hidden units).
The others are torchvision's, and timm's Inception-v4, untrained, with the 1000 outputs of ImageNet whatever they are
trained on, so that their gradients have the sizes that the papers report.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from gradsync.runtime.models.spec import Model
from gradsync.runtime.torchvision_operators import torchvision

AUXILIARY_WEIGHT = 0.3
EIGHTH, QUARTER = 8, 4
COLOURS, CLASSES = 3, 1000
IMAGENET = (COLOURS, 224, 224)


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
        nn.Linear(hidden, CLASSES),
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


def inceptionv4() -> nn.Module:
    """Inception-v4, which drops 0.2 of what its last layer reads.

    Source: Szegedy et al., "Inception-v4, Inception-ResNet and the Impact of Residual Connections on Learning", AAAI
    2017, Fig. 9.
    """
    torchvision()  # timm imports it
    model: nn.Module = importlib.import_module("timm").create_model("inception_v4", pretrained=False, drop_rate=0.2)
    return model


def narrowed(build: Callable[[], nn.Module], by: int) -> Callable[[], nn.Module]:
    """The same network with `by` times fewer channels in every layer, so with as many gradient tensors.

    For networks of convolutions (no groups), batch normalisation and dense layers, of colour images and 1000 outputs.
    Convolutions begin as He et al. have it ("Delving Deep into Rectifiers", ICCV 2015), normalisation at one and zero.
    """

    def make() -> nn.Module:
        with torch.device("meta"):  # the wide one takes no memory
            model = build()
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                _narrow_convolution(module, by)
            elif isinstance(module, nn.BatchNorm2d):
                _narrow_normalisation(module, by)
            elif isinstance(module, nn.Linear):
                module.in_features //= by
                module.weight = nn.Parameter(torch.empty(module.out_features, module.in_features))
                module.bias = nn.Parameter(torch.empty(module.out_features))
                module.reset_parameters()
        return model

    return make


def _narrow_convolution(module: nn.Conv2d, by: int) -> None:
    module.in_channels = COLOURS if module.in_channels == COLOURS else module.in_channels // by
    module.out_channels //= by
    module.weight = nn.Parameter(torch.empty(module.out_channels, module.in_channels, *module.kernel_size))
    nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    if module.bias is not None:
        module.bias = nn.Parameter(torch.zeros(module.out_channels))


def _narrow_normalisation(module: nn.BatchNorm2d, by: int) -> None:
    module.num_features //= by
    module.weight, module.bias = (nn.Parameter(torch.empty(module.num_features)) for _ in range(2))
    module.running_mean, module.running_var = (torch.empty(module.num_features) for _ in range(2))
    module.num_batches_tracked = torch.tensor(0)
    module.reset_parameters()


def _untrained(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: getattr(torchvision().models, name)(weights=None, **options)


def _resnet(name: str, smallest: int = 1) -> Model:
    return Model(_untrained(name), IMAGENET, CLASSES, smallest=smallest, smallest_alone=33)


def _vgg19(build: Callable[[], nn.Module], reduced: bool) -> Model:
    return Model(build, IMAGENET, CLASSES, smallest=32, smallest_alone=32, reduced=reduced)


def _densenet201(build: Callable[[], nn.Module], reduced: bool) -> Model:
    return Model(build, IMAGENET, CLASSES, smallest=29, smallest_alone=61, reduced=reduced)


def _inceptionv4(build: Callable[[], nn.Module], reduced: bool) -> Model:
    return Model(build, (COLOURS, 299, 299), CLASSES, smallest=75, smallest_alone=107, reduced=reduced)


MODELS: dict[str, Model] = {
    "lenet5": Model(LeNet5, (1, 28, 28), 10, smallest=28, smallest_alone=28, fixed=True),
    "resnet18": _resnet("resnet18"),
    "resnet50": _resnet("resnet50"),
    # with a pixel or two, most of its layers normalise over the two values of two samples: gradients are not finite
    "resnet152": _resnet("resnet152", smallest=17),
    "resnet152_quarter": Model(
        narrowed(_untrained("resnet152"), QUARTER), IMAGENET, CLASSES, smallest=1, smallest_alone=33, reduced=True
    ),
    # the AlexNet of one column (Krizhevsky, 2014), without groups
    "alexnet": Model(_untrained("alexnet"), IMAGENET, CLASSES, smallest=63, smallest_alone=63),
    "vgg19": _vgg19(_untrained("vgg19"), reduced=False),
    "vgg19_eighth": _vgg19(vgg19_eighth, reduced=True),
    "googlenet": Model(
        _untrained("googlenet", aux_logits=True, init_weights=True),
        IMAGENET,
        CLASSES,
        smallest=15,
        smallest_alone=47,
        loss=auxiliary_cross_entropy,
    ),
    "densenet201": _densenet201(_untrained("densenet201"), reduced=False),
    "densenet201_quarter": _densenet201(narrowed(_untrained("densenet201"), QUARTER), reduced=True),
    "inceptionv4": _inceptionv4(inceptionv4, reduced=False),
    "inceptionv4_quarter": _inceptionv4(narrowed(inceptionv4, QUARTER), reduced=True),
}

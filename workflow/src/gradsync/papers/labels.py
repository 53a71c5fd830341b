"""What contenders and models are called in tables and figures: as the papers call them."""

from __future__ import annotations

from collections.abc import Callable

from gradsync.configuration import peers, schemes
from gradsync.configuration.settings import Settings

Labels = Callable[[str], str]
MODELS = {
    "lenet5": "LeNet-5",
    "resnet50": "ResNet-50",
    "resnet152": "ResNet-152",
    "alexnet": "AlexNet",
    "vgg19": "VGG-19",
    "vgg19_eighth": "VGG-19 at an eighth of its channels",
    "googlenet": "GoogLeNet",
    "densenet201": "DenseNet-201",
    "inceptionv4": "Inception-v4",
    "bert_base": "BERT-Base",
    "transformer": "Transformer",
    "transformer_small": "a small Transformer",
}
# contenders that are no way to train in parallel; others are compared with them
REFERENCES = {"no_communication": "no communication", "one_rank": "one rank alone"}


def labels(settings: Settings) -> Labels:
    """The label of a scheme, a peer or a reference by its name; any other name is its own label, in words."""
    known = {name: each.label for name, each in schemes.load(settings.schemes).items()}
    known |= {name: each.label for name, each in peers.load(settings.peers).items()} | REFERENCES
    return lambda name: known.get(name, name.replace("_", " "))

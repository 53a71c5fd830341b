"""Sets, models and numbers of ranks that do not fit each other are refused in one line."""

import dataclasses

import pytest

from gradsync.errors import InputError
from gradsync.runtime import models
from image_files import load


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "letters"}, "data 'letters' does not exist; there are: digits, mnist, cifar10, imagenet, synthetic"),
        (
            {"name": "mnist"},
            "needs a folder that holds MNIST/raw: set data_folder in the configuration, or give --data",
        ),
        ({"name": "imagenet", "folder": "/nowhere"}, "folder /nowhere does not exist: correct data_folder or --data"),
        ({"name": "cifar10", "model": "lenet5", "size": 28}, "'cifar10' has 3 channels, model 'lenet5' takes 1"),
        ({"name": "digits", "batch": 360, "ranks": 4}, "batch 360 x 4 ranks is more than the 1438 training samples"),
        ({"name": "digits", "size": 16, "model": "vgg19"}, "takes no images of 16 x 16: the smallest is 32"),
        ({"name": "digits", "model": "zfnet"}, "model 'zfnet' does not exist"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(InputError) as caught:
        load(**arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_more_classes_than_outputs_are_refused(photographs, monkeypatch):
    monkeypatch.setitem(models.MODELS, "resnet18", dataclasses.replace(models.get("resnet18"), classes=2))
    with pytest.raises(InputError, match="'imagenet' has 3 classes, model 'resnet18' has 2 outputs"):
        load("imagenet", photographs)

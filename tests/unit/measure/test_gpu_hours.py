"""Estimated GPU hours: operations counted on the models, assumptions from the configuration."""

from __future__ import annotations

import pytest

from gradsync.configuration import settings
from gradsync.errors import InputError
from gradsync.measure import gpu_hours


@pytest.mark.parametrize(
    ("model", "giga_multiply_adds", "parameters"),
    [("resnet18", 1.814, 11_689_512), ("resnet50", 4.089, 25_557_032), ("vgg19", 19.632, 143_667_240)],
)
def test_operations_are_those_that_torchvision_documents(model, giga_multiply_adds, parameters):
    operations, counted = gpu_hours.cost(model, None)
    assert operations == pytest.approx(2e9 * giga_multiply_adds, rel=0.01)
    assert counted == parameters


def test_hours_follow_from_the_assumptions():
    training = {"model": "resnet50", "ranks": [2, 4], "batch": 8, "iterations": 100, "profile_iterations": 10}
    chosen = {"schemes": ["wfbp", "mgwfbp"], "peers": ["ddp"], "seeds": [0, 1]}
    content = {"version": 1, "name": "a", "training": [training | chosen], "estimate": {"teraflops": 1, "gigabits": 8}}
    two, four = gpu_hours.estimate(settings.parse(content, "here"))
    operations, parameters = gpu_hours.cost("resnet50", None)
    # two schemes, one peer, two references; two seeds each
    assert (two.job, two.contenders, two.iterations) == ("resnet50-2", 5, 5 * 2 * 100 + 10)
    assert two.seconds == pytest.approx(120 + two.iterations * (3 * 8 * operations / 1e12 + 4 * parameters / 1e9))
    assert four.seconds == pytest.approx(120 + two.iterations * (3 * 8 * operations / 1e12 + 6 * parameters / 1e9))
    assert four.gpu_hours == pytest.approx(4 * four.seconds / 3600)


def test_epochs_of_a_set_are_counted_or_refused():
    chosen = {"ranks": 8, "batch": 8, "epochs": 10, "schemes": ["wfbp"], "references": False, "profile_iterations": 0}
    training = {"model": "transformer_small", "data": "translation"} | chosen
    content = {"version": 1, "name": "a", "training": [training], "estimate": {"teraflops": 1, "gigabits": 8}}
    (launch,) = gpu_hours.estimate(settings.parse(content, "here"))
    assert launch.iterations == 10 * (6000 // 64)
    training |= {"data": "wmt17", "data_folder": "/data"}
    with pytest.raises(InputError, match=r"transformer_small-8: how many samples an epoch of 'wmt17' has"):
        gpu_hours.estimate(settings.parse(content, "here"))
    training["iterations"] = 50
    (launch,) = gpu_hours.estimate(settings.parse(content, "here"))
    assert launch.iterations == 50


def test_micro_batches_compute_more_and_send_as_much():
    training = {"model": "resnet50", "ranks": 2, "batch": 8, "accumulate": 4, "data": "cifar10", "epochs": 1}
    chosen = {"schemes": ["wfbp"], "references": False, "profile_iterations": 0}
    content = {"version": 1, "name": "a", "training": [training | chosen], "estimate": {"teraflops": 1, "gigabits": 8}}
    (launch,) = gpu_hours.estimate(settings.parse(content, "here"))
    operations, parameters = gpu_hours.cost("resnet50", None)
    assert launch.iterations == 50_000 // (8 * 4 * 2)
    assert launch.seconds == pytest.approx(
        120 + launch.iterations * (3 * 32 * operations / 1e12 + 4 * parameters / 1e9)
    )

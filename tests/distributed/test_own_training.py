"""`gradsync train` of a model of one's own: schemes and peers train it on the batch that it brings."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch

from gradsync.cli import main
from gradsync.runtime import models

SOURCE = '''
import torch
from torch import nn


class Net(nn.Module):
    """Tied and frozen weights, a layer that is used twice, batch normalisation, two inputs, a dictionary out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.twice = nn.Linear(16, 16)
        self.norm = nn.BatchNorm1d(7)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, scale):
        inside = self.norm(self.twice(self.twice(self.frozen(self.embed(tokens)))))
        return {"logits": self.head(inside * scale)}


def make():
    tokens = torch.randint(50, (6, 7))
    loss = lambda output: nn.functional.cross_entropy(output["logits"].flatten(0, 1), tokens.flatten())
    return Net(), loss, {"tokens": tokens, "scale": torch.tensor(0.5)}


def part_used():
    net, loss, inputs = make()
    net.unused = nn.Linear(3, 3)
    return net, loss, inputs


def regularised():
    net, loss, inputs = make()
    return net, lambda output: loss(output) + net.twice.weight.pow(2).sum(), inputs


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 2), nn.Parameter(torch.tensor(1.0))

    def forward(self, x):
        return self.scale * self.layer(x)


def given(net):
    return net, lambda output: output.square().mean(), torch.randn(3, 4)


def scaled(): return given(Scaled())
def double(): return given(nn.Linear(4, 2).double())[:2] + (torch.randn(3, 4, dtype=torch.float64),)


def patched():
    net = nn.Linear(4, 2)
    net.forward = lambda x, plain=net.forward: 2 * plain(x)
    return given(net)


def hooked():
    net = nn.Linear(4, 2)
    net.register_forward_hook(lambda module, inputs, output: 2 * output)
    return given(net)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))

    def forward(self, output):
        return (self.weight * output).mean()


def headed(): return nn.Linear(4, 2), Head(), torch.randn(3, 4)


class Doubling(nn.Linear):
    """It changes its inputs, and prints."""

    def forward(self, x):
        print("a pass")
        return super().forward(x.mul_(2))


def in_place():
    print("what a function prints is no result")
    return given(Doubling(4, 2))


def single():
    """Its loss takes outputs of one type alone."""
    mixed = torch.rand(50, 4)
    loss = lambda output: (output @ mixed).pow(2).mean()
    return nn.Sequential(nn.Linear(9, 30), nn.ReLU(), nn.Linear(30, 50)), loss, torch.randn(6, 9)
'''
BRIEF = ("--iterations", "8", "--output", "runs")


@pytest.fixture
def net(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(SOURCE)
    return tmp_path / "net.py"


def results(*names: str) -> list[dict]:
    return [json.loads(Path("runs", name, "result.json").read_text()) for name in names]


@pytest.mark.deep
def test_schemes_and_peers_train_it_alike(net):
    contenders = ("pipelined", "mgwfbp", "ddp", "zero")
    schedules = [word for name in contenders[:2] for word in ("--schedule", name)]
    peers = [word for name in contenders[2:] for word in ("--peer", name)]
    assert main(["train", "--model", "net.py:make", *schedules, *peers, *BRIEF]) == 0
    for result in results(*contenders):
        assert result["model"] == "net_make"
        assert (result["settings"]["data"], result["settings"]["batch"]) == ("synthetic", 6)
        assert result["conformance"]["difference_to_first"] < 1e-5
    for result in results(*contenders[:2]):
        assert result["conformance"]["oracle_dtype"] == "float64"
        assert result["conformance"]["oracle_difference"] < 1e-12


@pytest.mark.deep
def test_each_pass_has_the_batch_as_it_was_given(net, capfd):
    model, image = models.build(f"{net}:in_place", 0), torch.zeros(1, 1, 1, 1)
    assert model(image).item() == model(image).item()
    words = ("--schedule", "wfbp", "--peer", "ddp", *BRIEF)
    assert main(["train", "--model", "net.py:in_place", "--json", *words]) == 0
    json.loads(capfd.readouterr().out)
    for result in results("wfbp", "ddp"):
        assert result["settings"]["model_sha256"] == hashlib.sha256(net.read_bytes()).hexdigest()
        assert result["conformance"]["difference_to_first"] < 1e-6


@pytest.mark.deep
def test_a_parameter_without_a_gradient_is_trained_by_plans(net):
    assert main(["train", "--model", "net.py:part_used", "--schedule", "dear", *BRIEF]) == 0
    (result,) = results("dear")
    assert result["conformance"]["oracle_difference"] < 1e-12


@pytest.mark.deep
def test_a_loss_of_one_type_is_held_against_the_oracle_in_that(net):
    words = ("--schedule", "pipelined", "--peer", "fsdp2", *BRIEF)
    assert main(["train", "--model", "net.py:single", *words]) == 0
    planned, sharded = results("pipelined", "fsdp2")
    assert planned["conformance"]["oracle_dtype"] == "float32"
    assert sharded["conformance"]["difference_to_first"] < 1e-5


def test_gradients_depend_on_the_images_so_that_a_lost_sum_shows(net):
    model = models.build(f"{net}:make", 0)
    first, second = (model(torch.tensor([value, 7.0]).view(2, 1, 1, 1)) for value in (0.0, 1.0))
    assert float(second.detach()) == pytest.approx(1.1 * float(first.detach()))
    assert {key for key, each in model.named_parameters() if each.requires_grad} == {
        *("embed.weight", "twice.weight", "twice.bias", "norm.weight", "norm.bias"),
    }


@pytest.mark.parametrize(
    ("function", "words", "message"),
    [
        (
            "part_used",
            ("--peer", "ddp"),
            "'unused.weight' of net.py:part_used gets no gradient, for which DDP would wait",
        ),
        ("make", ("--peer", "fsdp2"), "'head.weight' is shared between blocks, which it shards apart"),
        ("regularised", (), "the loss computes with the module itself"),
        ("scaled", ("--peer", "fsdp2"), "'scale' is a single number, which it does not shard"),
        ("patched", (), "put in place of its class's forward"),
        ("hooked", (), "the module has hooks"),
        ("double", (), "parameter 'weight' is of torch.float64"),
        ("headed", (), "the loss has parameters"),
        ("make", ("--data", "mnist"), "one of your own brings its inputs: leave --data and --stage out"),
        ("make", ("--stage", "epochs=1"), "one of your own brings its inputs: leave --data and --stage out"),
        ("make", ("--batch", "64"), "gives a batch of 6: leave it out"),
        ("make", ("--size", "8"), "--size 8: the inputs of a model of your own"),
        ("make", ("--target-accuracy", "0.9"), "has no test samples"),
        ("made", (), "has no function 'made'; did you mean make?"),
    ],
)
def test_what_can_not_be_trained_is_refused_before_ranks_start(net, capsys, function, words, message):
    assert main(["train", "--model", f"net.py:{function}", "--schedule", "wfbp", *words, *BRIEF]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not Path("runs", "wfbp").exists()

"""Models of one's own: what their function gives is measured; what can't be is refused before ranks start."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from gradsync.cli import main
from gradsync.plan.workload import Workload
from gradsync.runtime.models import own

SOURCE = '''
import torch
from torch import nn
import parts

class Net(nn.Module):
    """Tied and frozen weights, a layer that nothing uses, one that is used twice, two inputs, a dictionary out."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.frozen = nn.Linear(16, 16).requires_grad_(False)
        self.twice = nn.Linear(16, 16)
        self.unused = nn.Linear(3, 3)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, scale):
        return {"logits": self.head(self.twice(self.twice(self.frozen(self.embed(tokens)))) * scale)}

def make():
    tokens = torch.randint(50, (parts.BATCH, 7))
    def loss(output):
        return nn.functional.cross_entropy(output["logits"].flatten(0, 1), tokens.flatten())
    return Net(), loss, {"tokens": tokens, "scale": torch.tensor(0.5)}

def raises(): raise ValueError("no data here\\nat all")
def bare(): return Net()
def many(): net, _, inputs = make(); return net, lambda output: output["logits"], inputs
def wrong(): net, loss, _ = make(); return net, loss, torch.zeros(2, 2)
def endless(): net, loss, inputs = make(); return net, lambda output: loss(output) / 0, inputs
def still(): net, loss, inputs = make(); return net.requires_grad_(False), loss, inputs
def compiled(): net, loss, inputs = make(); return torch.compile(net), loss, inputs
'''


@pytest.fixture
def net(tmp_path: Path, monkeypatch) -> str:
    (tmp_path / "parts.py").write_text("BATCH = 4\n")  # beside it, as a script's own modules
    (tmp_path / "net.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return str(tmp_path / "net.py")


def test_a_model_of_ones_own_is_measured_on_ranks_and_planned_for(net, tmp_path, capsys):
    output = tmp_path / "w.json"
    arguments = ["--ranks", "2", "--iterations", "3", "--output", str(output)]
    assert main(["measure", "layers", "--model", f"{net}:make", *arguments]) == 0
    capsys.readouterr()
    measured = Workload.load(output)
    made = own.load(f"{net}:make").module
    trained = {key: each.numel() for key, each in made.named_parameters() if each.requires_grad}
    assert {layer.name: layer.elements for layer in measured.layers} == trained
    assert set(trained) == {"embed.weight", "twice.weight", "twice.bias", "unused.weight", "unused.bias"}
    assert measured.name == "net_make"
    assert measured.provenance["batch"] == 4
    assert {layer.name for layer in measured.layers[-2:]} == {"unused.weight", "unused.bias"}  # they never come
    forward = [layer.name for layer in sorted(measured.layers, key=lambda layer: layer.forward_index or 0)]
    assert forward.index("embed.weight") < forward.index("twice.weight")
    assert sum(layer.forward_seconds or 0 for layer in measured.layers) == pytest.approx(measured.forward_seconds)
    assert main(["advise", "--json", "--workload", str(output), "--allreduce", "a=1e-4,b=1e-9"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] == "net_make"


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("raises", "raised ValueError: no data here"),
        (
            "bare",
            "must give (module, loss, inputs): an nn.Module, a function of its output, one batch of inputs; it gave",
        ),
        ("many", "the loss must be one number with a gradient, and is a tensor of shape (4, 7, 50)"),
        ("wrong", "forward raised "),
        ("endless", "the loss of the inputs is inf"),
        ("still", "no parameter that requires a gradient"),
        ("compiled", "the module is compiled"),
        ("mak", "has no function 'mak'; did you mean make?"),
    ],
)
def test_what_can_not_be_measured_is_refused_in_one_line(net, tmp_path, capsys, function, message):
    output = tmp_path / "w.json"
    assert main(["measure", "layers", "--model", f"{net}:{function}", "--output", str(output)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["measure", "layers", "--model", "nowhere/net.py:make", "--output", "w.json"], "there is no file"),
        (["measure", "layers", "--model", "nowhere.at_all:make", "--output", "w.json"], "ModuleNotFoundError"),
        (["measure", "operations", "--model", "net:make", "--output", "w.json"], "is not counted"),
        (["measure", "loading", "--model", "net:make", "--output", "o"], "is not what photographs are loaded for"),
        (["train", "--model", "net:gone", "--schedule", "wfbp", "--output", "x"], "has no function 'gone'"),
        (["measure", "layers", "--model", "a.py:b", "--size", "8", "--output", "w.json"], "--size 8: the inputs"),
    ],
)
def test_other_mistakes_are_told(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_the_function_is_called_with_the_seed(net):
    first, again, other = (own.load(f"{net}:make", seed).module.embed.weight for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)

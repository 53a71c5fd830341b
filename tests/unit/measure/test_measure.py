"""Profilers: what they write is what they timed, and refusals come before anything starts."""

import json
import queue
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from gradsync.cli import main
from gradsync.costs.fitted import load_points
from gradsync.measure import allreduce, interference, layers, passes
from gradsync.plan.workload import Workload
from gradsync.runtime import devices, models
from tiny_workloads import workload

BATCH = 3


class Crossed(nn.Module):
    """Layers used in another order than they are registered in, batch-norm statistics, and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)
        self.unused = nn.Linear(3, 3)
        self.first = nn.Linear(4, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.relu(self.norm(self.first(x.flatten(1)))))


def doubled(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return 2 * nn.functional.cross_entropy(output, labels)


class Clock:
    """Stands for the module `time` and moves only when a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def crossed(monkeypatch: pytest.MonkeyPatch) -> str:
    model = models.Model(Crossed, (1, 2, 2), 2, smallest=2, smallest_alone=2, loss=doubled)
    monkeypatch.setitem(models.MODELS, "crossed", model)
    return "crossed"


def test_a_pass_hands_over_the_gradients_of_the_models_own_loss(crossed):
    one = passes.Pass(crossed, None, BATCH, seed=5)
    weights = one.weights.clone()
    one.compute()
    again = passes.Pass(crossed, None, BATCH, seed=5)  # draws the same samples
    samples = again.samples
    chosen = np.random.default_rng(5).permutation(len(samples.labels))[:BATCH]
    used = [parameter for name, parameter in again.parameters.items() if "unused" not in name]
    expected = iter(torch.autograd.grad(doubled(again.model(samples.images[chosen]), samples.labels[chosen]), used))
    parts = [
        torch.zeros(parameter.numel()) if "unused" in name else next(expected).reshape(-1)
        for name, parameter in again.parameters.items()
    ]
    torch.testing.assert_close(one.flat, torch.cat(parts))
    assert one.flat.abs().max() > 0
    one(scale=0.5)
    updated = weights - passes.SGD["lr"] * 0.5 * torch.cat(parts)
    torch.testing.assert_close(one.weights, updated)
    torch.testing.assert_close(one.parameters["first.weight"].detach().reshape(-1), updated[-28:-12])


def test_layers_come_in_the_order_of_autograd(alone, crossed):
    load = layers.measure(crossed, BATCH, iterations=3)
    names = [layer.name for layer in load.layers]
    # autograd gives a bias before its weight; what it never reaches comes last
    assert [name for name in names if "weight" in name] == [
        "last.weight",
        "norm.weight",
        "first.weight",
        "unused.weight",
    ]
    assert set(names[-2:]) == {"unused.weight", "unused.bias"}
    by_index = sorted(load.layers, key=lambda layer: layer.forward_index)
    order = ["first.weight", "first.bias", "norm.weight", "norm.bias", "unused.weight", "unused.bias"]
    assert [layer.name for layer in by_index] == [*order, "last.weight", "last.bias"]
    assert {layer.name: layer.elements for layer in load.layers} == {
        name: parameter.numel() for name, parameter in Crossed().named_parameters()
    }
    assert all(layer.backward_seconds > 0 for layer in load.layers[:-2])
    assert all(layer.backward_seconds == 0 for layer in load.layers[-2:])
    assert load.statistics == 8  # a mean and a variance a channel; the counter of batches is no float
    assert load.forward_seconds > 0
    assert load.update_seconds > 0
    assert load.norm_seconds > 0
    assert load.provenance["batch"] == BATCH
    assert load.provenance["torch"] == torch.__version__
    assert Workload.from_json(load.to_json()) == load


def test_the_times_are_those_that_passed(alone, clock, monkeypatch):
    """A model whose forward takes 20 ms, whose backward 40 and whose norm 10, on a clock that nothing else moves."""
    monkeypatch.setattr(devices, "time", clock)

    def norm(reads: list[torch.Tensor], writes: list[torch.Tensor]) -> None:
        clock.now += 0.01

    monkeypatch.setitem(passes.EXECUTED, "norm", norm)

    class Backward(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            clock.now += 0.02
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            clock.now += 0.04
            return gradient

    class Slow(Crossed):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(Backward.apply(self.first(x.flatten(1))))

    monkeypatch.setitem(models.MODELS, "slow", models.Model(Slow, (1, 2, 2), 2, smallest=2, smallest_alone=2))
    load = layers.measure("slow", BATCH, iterations=3)
    assert load.update_seconds == 0
    assert load.norm_seconds == pytest.approx(0.01)
    assert load.forward_seconds == pytest.approx(0.02)
    seconds = [layer.backward_seconds for layer in load.layers]
    assert load.layers[2].name in ("first.weight", "first.bias")  # the first gradient behind it
    assert seconds == pytest.approx([0, 0, 0.04, *[0] * (len(seconds) - 3)])


# All-reduce


def test_what_runs_beside_messages_is_timed_beside_messages(clock, monkeypatch):
    """Three iterations while a message is in flight; a fourth outlasts it and does not count."""
    monkeypatch.setattr(interference, "time", clock)
    begun, over = threading.Event(), threading.Event()
    lanes: list[threading.Thread] = []
    left = [3.0, 1.0, 2.0, 100.0]

    def send() -> None:
        lanes.append(threading.current_thread())
        begun.set()
        over.wait()

    def iterate() -> None:
        begun.wait()
        clock.now += left.pop(0)
        if not left:
            over.set()
            lanes[0].join()

    assert interference._together(iterate, send, 1) == (2.0, 106.0)


def test_an_iteration_that_outlasts_all_messages_is_all_there_is(clock, monkeypatch):
    monkeypatch.setattr(interference, "time", clock)
    lanes: queue.Queue[threading.Thread] = queue.Queue()

    def send() -> None:
        clock.now += 5.0
        lanes.put(threading.current_thread())

    assert interference._together(lambda: lanes.get().join(), send, 4) == (20.0, 5.0)


def test_one_after_the_other_takes_the_sum(clock, monkeypatch):
    monkeypatch.setattr(interference, "time", clock)
    seen = []

    def iterate() -> None:
        seen.append("compute")
        clock.now += 2.0

    def send() -> None:
        seen.append("send")
        clock.now += 3.0

    assert interference._in_turn(iterate, send, 4) == 5.0
    assert seen == ["compute", "send"] * 4


def test_interference_is_measured_from_the_smallest_gradient_to_all(alone, crossed, monkeypatch):
    monkeypatch.setattr(interference, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(interference, "SEGMENT_SECONDS", 0.002)
    load = workload([40, 4000, 80], [1.0, 1.0, 1.0])
    measured = interference.measure(load, crossed, BATCH)
    assert (measured.points[0].bytes, measured.points[-1].bytes) == (40, 4120)
    assert measured.ranks == 1
    for point in measured.points:
        assert point.computation >= 1
        assert point.computation_interval is None  # two rounds
    assert measured.handover_interval is None  # of two sizes in two rounds
    assert "interval" not in measured.to_json()
    assert measured.provenance["model"] == crossed


@pytest.mark.deep
def test_interference_of_six_rounds_has_intervals(alone, crossed, monkeypatch):
    monkeypatch.setattr(interference, "ROUNDS", (6, 6))
    monkeypatch.setattr(interference, "SEGMENT_SECONDS", 0.002)
    measured = interference.measure(workload([40, 4000, 80], [1.0, 1.0, 1.0]), crossed, BATCH)
    for point in measured.points:
        for low, high in (point.computation_interval, point.communication_interval):
            assert low <= high
        assert point.computation_interval[0] <= point.computation
    assert measured.handover_interval is not None


# Refusals


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["layers", "--ranks", "1", "2"], "--ranks takes one number"),
        (["layers", "--model", "nosuch"], "model 'nosuch' does not exist"),
        (["layers", "--size", "32"], "its size is fixed, 28 x 28"),
        (["layers", "--iterations", "0"], "--iterations 0"),
        (["layers", "--ranks", "0"], "--ranks 0: at least 1"),
        (["interference", "--workload", "w.json"], "measure interference: --ranks must be at least 2"),
        (["allreduce", "--ranks", "1"], "measure allreduce: --ranks must be at least 2"),
        (["allreduce", "--ranks", "2", "--collective", "nosuch"], "collective 'nosuch' does not exist"),
        (["allreduce", "--ranks", "2", "--collective", "bml@switch"], "topology 'switch' has no links of their own"),
        (["allreduce", "--ranks", "2", "--collective", "native", "bml"], "topology 'bcube': 2 is no n^k"),
        (["allreduce", "--ranks", "4", "2", "--collective", "ring@switch:3"], "holds 1 to 3 ranks, not 4"),
        (["allreduce", "--ranks", "2", "60000"], "60000 ranks are more than this machine can hold"),
        (
            ["allreduce", "--ranks", "2", "--smallest", "100", "--largest", "50"],
            "--smallest 100: must be less than --largest 50",
        ),
        (["interference", "--ranks", "2"], "--workload: needed, and not given"),
        (["allreduce", "--ranks", "2", "--by-layer"], "--by-layer: --workload is needed"),
        (["interference", "--ranks", "2", "--workload", "nosuch.json"], "nosuch.json: can't be read"),
    ],
    ids=str,
)
def test_what_can_t_be_measured_is_refused_first(arguments, wanted, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gradsync.runtime.launch.launch", lambda *_, **__: pytest.fail("started something"))
    assert main(["measure", *arguments, "--output", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 1
    assert wanted in captured.err
    assert not (tmp_path / "out").exists()


@pytest.mark.deep
def test_two_ranks_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    load, csv = tmp_path / "workload.json", tmp_path / "points.csv"
    arguments = ["--ranks", "2", "--model", "resnet18", "--size", "16", "--batch", "2", "--iterations", "2"]
    assert main(["measure", "layers", *arguments, "--output", str(load)]) == 0
    measured = Workload.load(load)
    assert len(measured.layers) == 62
    assert measured.provenance["ranks"] == 2
    assert measured.provenance["size"] == 16
    assert measured.statistics == 9600
    capsys.readouterr()
    messages = ["--smallest", "8", "--largest", "4096", "--collective", "native", "ring", "bml@bcube:2,1"]
    assert main(["measure", "allreduce", "--ranks", "2", *messages, "--json", "--output", str(csv)]) == 0
    answer = json.loads(capsys.readouterr().out)
    for name in ("", "ring-2", "bml-2"):
        sizes, times = load_points(csv, 2, name)
        points = [point for point in answer["points"] if point["collective"] == name]
        expected = (allreduce.sizes_in_chunks if name else allreduce.sizes)(8, 4096)
        assert [point["bytes"] for point in points] == sizes.tolist() == expected
        assert [point["mean_seconds"] for point in points] == times.tolist()
        assert (times > 0).all()
    assert f"to {allreduce.REPEATS}" in answer["provenance"]["repeats"]


def test_by_layer_no_message_of_our_own_collectives_is_longer_than_a_gradient(tmp_path: Path):
    load, csv = tmp_path / "workload.json", tmp_path / "points.csv"
    load.write_text(workload([40, 4000, 80], [1.0, 1.0, 1.0]).to_json())
    asked = ["--workload", str(load), "--by-layer", "--collective", "native", "ring", "--ranks", "2"]
    assert main(["measure", "allreduce", *asked, "--output", str(csv)]) == 0
    assert [max(load_points(csv, 2, name)[0]) for name in ("", "ring-2")] == [4120, 4000]

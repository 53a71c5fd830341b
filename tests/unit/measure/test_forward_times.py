"""Forward seconds by layer: from when forward first needs a parameter to when it needs the next one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from gradsync.measure import layers, passes
from gradsync.plan.workload import Workload
from gradsync.runtime import devices, models

CLOCK = SimpleNamespace(now=0.0)
CLOCK.perf_counter = lambda: CLOCK.now
BATCH = 3


class Slow(nn.Linear):
    """A layer that takes as many seconds as it is told."""

    def __init__(self, seconds: float) -> None:
        super().__init__(4, 4)
        self.seconds = seconds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CLOCK.now += self.seconds
        return super().forward(x)


class Model(nn.Module):
    """7 s: 1 before its layers, 3 and 2 in them, 1 after them, where it takes a parameter of its own. One is unused."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.Parameter(torch.ones(4))
        self.second, self.unused, self.first = Slow(2.0), Slow(100.0), Slow(3.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        CLOCK.now += 1.0
        x = self.second(self.first(x.flatten(1)))
        CLOCK.now += 1.0
        return x * self.own


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> str:
    """Its seconds are those of a clock that nothing else moves."""
    monkeypatch.setattr(devices, "time", CLOCK)
    monkeypatch.setitem(models.MODELS, "slow", models.Model(Model, (1, 2, 2), 4, smallest=2, smallest_alone=2))
    return "slow"


EXPECTED = {
    "first.weight": 0.0,
    "first.bias": 4.0,  # with what comes before it
    "unused.weight": 0.0,
    "unused.bias": 0.0,
    "own": 0.0,
    "second.weight": 0.0,
    "second.bias": 3.0,  # with what comes after it
}


@pytest.mark.usefixtures("alone")
def test_layers_take_the_seconds_to_the_next_one_and_together_those_of_forward(slow):
    load = layers.measure(slow, BATCH, iterations=3)
    assert load.forward_seconds == pytest.approx(7.0)
    ahead = [load.layers[i] for i in load.forward_order()]
    assert sorted(layer.name for layer in ahead[2:5]) == ["own", "unused.bias", "unused.weight"]
    assert {layer.name: layer.forward_seconds for layer in ahead} == pytest.approx(EXPECTED)
    assert [layer.forward_index for layer in ahead] == [*range(len(ahead))]
    assert Workload.from_json(load.to_json()) == load


@pytest.mark.usefixtures("alone")
def test_totals_are_those_of_the_slowest_rank_and_shares_those_of_this_one(slow, monkeypatch):
    monkeypatch.setattr(layers, "_slowest", lambda mine: 2 * mine.numpy())
    load = layers.measure(slow, BATCH, iterations=3)
    assert load.forward_seconds == pytest.approx(14.0)
    assert {layer.name: layer.forward_seconds / 2 for layer in load.layers} == pytest.approx(EXPECTED)


@pytest.mark.usefixtures("alone")
def test_of_real_layers_each_call_takes_time_and_all_take_that_of_forward():
    load = layers.measure("lenet5", 2, iterations=3)
    ahead = [load.layers[i] for i in load.forward_order()]
    assert [layer.name for layer in ahead] == [name for name, _ in models.build("lenet5", 0).named_parameters()]
    assert all((layer.forward_seconds > 0) == layer.name.endswith("bias") for layer in ahead)
    assert sum(layer.forward_seconds for layer in ahead) == pytest.approx(load.forward_seconds)


def test_a_pass_that_nobody_watches_marks_no_needs_and_has_no_hooks(slow):
    one = passes.Pass(slow, None, BATCH)
    assert one.times(one()).ahead == {}
    assert not any(module._forward_pre_hooks for module in one.model.modules())
    drawn = one.samples.random.bit_generator.state
    one.watch()
    assert one.samples.random.bit_generator.state == drawn
    assert list(one.times(one()).ahead) == [name for event in one.needs for name in event[0]]
    assert list(one.times(one()).ahead) == list(one.times(one()).ahead)

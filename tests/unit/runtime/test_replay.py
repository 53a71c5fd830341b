"""Replayed computation: waits as long as a workload says, gradients of its sizes in its order, a model that learns."""

from __future__ import annotations

import copy
import time
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch

from gradsync.errors import InputError
from gradsync.measure.passes import Pass
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models, replay
from gradsync.runtime.forward_order import forward_order
from gradsync.runtime.replay import Replayed, without_waiting

LAYERS = (("head.weight", 40, 0.06), ("body.0.bias", 4, 0.02), ("body.0.weight", 400, 0.04))
SAMPLES = torch.full((2, 1, 1, 1), 3.0)


def workload(**changes):
    layers = tuple(Layer(name=name, bytes=4 * elements, backward_seconds=seconds) for name, elements, seconds in LAYERS)
    return Workload(name="toy", forward_seconds=0.09, layers=layers).model_copy(update=changes)


def backward(model):
    """The times at which forward began and ended, and at which each gradient came."""
    ready = {}
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: ready.update({name: time.perf_counter()}))
    start = time.perf_counter()
    loss = model(SAMPLES)
    middle = time.perf_counter()
    loss.backward()
    return start, middle, ready


def test_gradients_come_in_the_order_and_with_the_sizes_of_the_workload():
    model = Replayed(workload(), pace=0.0)
    *_, ready = backward(model)
    assert list(ready) == [name for name, *_ in LAYERS]
    assert {name: parameter.numel() for name, parameter in model.named_parameters()} == {
        name: elements for name, elements, _ in LAYERS
    }


def test_no_two_gradients_are_equal_and_all_ranks_begin_alike():
    """A selection of the largest would take those of one value apart, which real gradients don't have."""
    one, other = Replayed(workload(), pace=0.0), Replayed(workload(), pace=0.0)
    backward(one)
    for parameter, same in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(parameter, same)
        assert len(parameter.grad.unique()) == parameter.numel()


def test_it_waits_as_long_as_the_workload_says_and_no_wait_is_lost_on_the_next():
    start, middle, ready = backward(Replayed(workload()))
    forward = middle - start
    # never sooner; how much later is the machine's business
    assert forward >= 0.09
    ends = [middle, *ready.values()]
    assert ends[-1] - middle >= sum(seconds for *_, seconds in LAYERS)
    assert all(after > before for before, after in pairwise(ends))


def test_a_late_wait_is_made_up_for_by_the_next(monkeypatch):
    time = SimpleNamespace(now=7.0, perf_counter=lambda: time.now, sleep=lambda seconds: slept.append(seconds))
    slept: list[float] = []
    monkeypatch.setattr(replay, "time", time)
    clock = replay._Clock()
    clock.start()
    time.now += 0.5  # something takes longer than its wait
    clock.wait(0.1)
    clock.wait(0.3)
    assert slept == []
    clock.wait(1.0)
    assert slept == pytest.approx([0.9])  # 1.4 of waits from the start, of which 0.5 have passed


class Time:
    """A clock that goes on only while somebody works or sleeps, and wakes everybody a millisecond late."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds + 0.001


def test_host_time_that_waits_hide_is_told(monkeypatch):
    """Three waits of 10 ms; what the host does before them takes 2, 4 and 30 ms, of which the last wait hides 9."""
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    model = Replayed(workload())
    model.clock.start()
    for work in (0.002, 0.004, 0.030):
        clock.now += work
        model.clock.wait(0.010)
    # a wait that begins a millisecond late is that much shorter; what the third could hide is what was left of it
    assert model.absorbed_seconds() == pytest.approx(0.002 + 0.004 + 0.009)
    assert model.absorbed_seconds() == 0
    model.clock.start()
    model.clock.wait(0.0)
    assert model.absorbed_seconds() == 0


def test_forward_waits_layer_by_layer_where_the_workload_knows_how_long():
    layers = tuple(layer.model_copy(update={"forward_seconds": 0.01}) for layer in workload().layers)
    assert Replayed(workload(layers=layers)).forward_seconds == [0.01] * 3
    spread = Replayed(workload()).forward_seconds  # as backward is
    assert sum(spread) == pytest.approx(0.09)
    assert spread == pytest.approx(workload().forward_by_layer().tolist())


INDEX = {"head.weight": 2, "body.0.bias": 0, "body.0.weight": 1}
FIRST = ["body.0.bias", "body.0.weight", "head.weight"]  # forward; backward has them in another order, not the reverse


def indexed(**changes):
    """Layers of which every one knows its place in forward, and takes 10, 20 or 30 ms there."""
    layers = (layer.model_copy(update={"forward_index": INDEX[layer.name]}) for layer in workload().layers)
    timed = (layer.model_copy(update={"forward_seconds": 0.01 * (1 + layer.forward_index)}) for layer in layers)
    return workload(layers=tuple(timed), **changes)


@pytest.mark.parametrize(("load", "order"), [(indexed(), FIRST), (workload(), [name for name, *_ in LAYERS][::-1])])
def test_forward_takes_its_layers_by_their_index_or_backwards_and_backward_has_its_own_order(load, order):
    model = Replayed(load, pace=0.0)
    assert list(forward_order(model, lambda copied: copied(SAMPLES)).names) == order
    *_, ready = backward(model)
    assert list(ready) == [name for name, *_ in LAYERS]
    for parameter in model.parameters():
        torch.testing.assert_close(parameter.grad, parameter.detach() - 3.0)


def test_each_layer_is_asked_for_once_the_one_before_it_has_waited(monkeypatch):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    model = Replayed(indexed())
    order = forward_order(model, lambda copied: copied(SAMPLES))
    asked: dict[str, float] = {}
    order.watch(model, lambda names: asked.update(dict.fromkeys(names, clock.now)))
    start = clock.now
    model(SAMPLES)
    assert list(asked) == FIRST
    # each wait is over a millisecond late, and the next one as much shorter
    assert [now - start for now in asked.values()] == pytest.approx([0.0, 0.011, 0.031])
    assert clock.now - start == pytest.approx(0.061)


def test_no_wait_hides_that_forward_had_to_wait_for_parameters(monkeypatch):
    clock = Time()
    monkeypatch.setattr(replay, "time", clock)
    model = Replayed(indexed())
    order = forward_order(model, lambda copied: copied(SAMPLES))

    def wait(names):
        if names == ("body.0.weight",):
            clock.now += 0.5
            model.hold()

    order.watch(model, wait).begin()
    model.absorbed_seconds()
    start = clock.now
    model(SAMPLES)
    assert clock.now - start == pytest.approx(0.011 + 0.5 + 0.051)
    assert model.absorbed_seconds() == pytest.approx(0.0)


def test_the_loss_is_the_same_in_any_order():
    losses = []
    for load in (workload(), indexed()):
        model = Replayed(load, pace=0.0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.fill_(float(len(name)))
        losses.append(model(SAMPLES).item())
    assert losses == pytest.approx([sum((len(name) - 3.0) ** 2 / 2 for name, *_ in LAYERS)] * 2)


def test_each_parameter_is_drawn_to_the_mean_of_the_samples():
    model = Replayed(workload(), pace=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(20):
        optimizer.zero_grad()
        model(SAMPLES).backward()
        optimizer.step()
    for parameter in model.parameters():
        torch.testing.assert_close(parameter.detach(), torch.full_like(parameter, 3.0), rtol=1e-5, atol=1e-4)


def test_the_gradient_is_that_of_the_loss_it_states():
    model = Replayed(workload(), pace=0.0).double()
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(torch.linspace(-1, number, parameter.numel(), dtype=torch.float64))
    (2 * model(SAMPLES.double())).backward()
    for parameter in model.parameters():
        torch.testing.assert_close(parameter.grad, 2 * (parameter.detach() - 3.0))


def test_copies_take_turns_with_the_memory_of_their_gradients():
    model = Replayed(workload(), pace=1e-6)
    other = copy.deepcopy(model)
    backward(model)
    places = {name: parameter.grad.data_ptr() for name, parameter in model.named_parameters()}
    model.zero_grad()
    backward(other)  # none is copied on its way
    assert {name: parameter.grad.data_ptr() for name, parameter in other.named_parameters()} == places
    for parameter in other.parameters():
        torch.testing.assert_close(parameter.grad, parameter.detach() - 3.0)


def test_gradients_of_micro_batches_are_added():
    model = Replayed(workload(), pace=1e-6)
    for turn in range(2):
        model.zero_grad()
        for _ in range(3):
            model(SAMPLES).backward()
        for parameter in model.parameters():
            torch.testing.assert_close(parameter.grad, 3 * (parameter.detach() - 3.0), msg=f"turn {turn}")


def test_what_keeps_its_gradients_has_its_own():
    model = without_waiting(Replayed(workload()))
    first = torch.autograd.grad(model(SAMPLES), list(model.parameters()))
    kept = [gradient.clone() for gradient in first]
    torch.autograd.grad(model(2 * SAMPLES), list(model.parameters()))
    assert all(map(torch.equal, first, kept))


def test_a_copy_without_waits_computes_the_same_and_other_models_stay(monkeypatch):
    slept: list[float] = []
    monkeypatch.setattr(replay, "time", SimpleNamespace(perf_counter=lambda: 0.0, sleep=slept.append))
    model = Replayed(workload(), pace=50.0)
    backward(without_waiting(model))
    assert slept == []
    backward(model)
    assert len(slept) == 2 * len(LAYERS)
    assert model.pace == 50.0
    other = torch.nn.Linear(1, 1)
    assert without_waiting(other) is other


def test_a_file_is_a_model_of_the_registry(tmp_path):
    path = tmp_path / "toy.json"
    path.write_text(workload().to_json())
    name = f"replay:{path}"
    assert models.title(name) == "toy"
    assert models.title("lenet5") == "lenet5"
    assert models.shape(name) == (1, 1, 1)
    one = Pass(name, None, 2)
    one.model.pace = 0.0
    assert list(one.times(one()).backward) == [layer for layer, *_ in LAYERS]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "can't be read"),
        (lambda path: path.write_text("{}"), "not a workload"),
        (lambda path: path.write_text(halves().to_json()), "only float32 gradients can be replayed, not float16"),
    ],
    ids=["missing", "no workload", "float16"],
)
def test_what_cannot_be_replayed_is_refused(tmp_path, write, message):
    path = tmp_path / "toy.json"
    write(path)
    with pytest.raises(InputError, match=message):
        models.build(f"replay:{path}", 0)


def halves():
    layer = Layer(name="half", bytes=8, backward_seconds=0.0, dtype="float16")
    return Workload(name="toy", forward_seconds=0.0, layers=(layer,))

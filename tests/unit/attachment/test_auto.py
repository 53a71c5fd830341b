"""`gradsync.attach(.., "auto")` on one rank: what it refuses, what is predicted, and how the better plan is found."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import attached_models as attached
import gradsync
from gradsync.attachment import Auto, RefusedError
from gradsync.attachment.auto import candidates
from gradsync.attachment.profile import Profile, Seconds, workload
from gradsync.attachment.trial import Trial, verdict
from gradsync.costs import Linear
from gradsync.plan.workload import Workload
from gradsync.runtime.devices import Device

CASE = attached.CASES["plain"]
IMAGES, LABELS = attached.sample(0, 0, torch.float32)


class Clock(Device):
    """Its time is what a test sets it to."""

    now = 0.0

    def mark(self) -> float:
        return self.now


def parameters() -> dict[str, nn.Parameter]:
    return {name: nn.Parameter(torch.zeros(3)) for name in ("first", "second", "never")}


REFUSED = {
    "no warm-up": (Auto(warmup=0), r"Auto\(warmup=0\): a whole number of at least 1"),
    "half a step": (Auto(steps=1.5), r"Auto\(steps=1\.5\): a whole number"),
    "no time": (Auto(measure_seconds=0.0), r"Auto\(measure_seconds=0\.0\): seconds above 0"),
    "endless": (Auto(measure_seconds=float("inf")), r"Auto\(measure_seconds=inf\): seconds above 0"),
    "one name": (Auto(schedules="wfbp"), r"Auto\(schedules='wfbp'\): a tuple of names"),
    "unknown": (Auto(schedules=("wfpb",)), r"scheme 'wfpb' does not exist"),
    "sharded": (Auto(schedules=("wfbp", "pipelined")), r"'pipelined' updates parameters itself, and the optimizer has"),
    "sparse": (Auto(schedules=("exact_topk",)), r"'exact_topk' changes what is trained: 0\.01 of the gradients'"),
    "a method": (Auto(schedules=("sync_easgd1",)), r"'sync_easgd1' changes what is trained: it applies no mean grad"),
    "norms": (Auto(schedules=("pto",)), r"'pto' deals out norms for an optimizer of its own"),
    "of transfers": (Auto(schedules=("ring",)), r"'ring' sums by 'ring', and only the backend's own"),
    "lanes": (Auto(schedules=("kway",)), r"'kway' sends on several lanes"),
}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", REFUSED)
def test_settings_that_make_no_sense_are_refused(name):
    options, message = REFUSED[name]
    model = attached.build(CASE)
    with pytest.raises(RefusedError, match=message):
        gradsync.attach(model, attached.optimizer(model), options)


@pytest.mark.usefixtures("alone")
def test_what_it_measures_itself_is_not_given_and_gradients_have_one_type():
    model = attached.build(CASE)
    with pytest.raises(RefusedError, match=r"measures the loop itself: leave out workload= and inputs="):
        gradsync.attach(model, attached.optimizer(model), "auto", inputs=IMAGES)
    model.head.double()
    with pytest.raises(RefusedError, match=r"'conv\.weight' is torch\.float32, 'head\.weight' torch\.float64: plans"):
        gradsync.attach(model, attached.optimizer(model), "auto")


@pytest.mark.usefixtures("alone")
def test_one_rank_keeps_the_starting_plan_and_says_so_once(caplog):
    model = attached.build(CASE)
    optimizer = attached.optimizer(model)
    with caplog.at_level(logging.INFO, logger="gradsync"):
        handle = gradsync.attach(model, optimizer, "auto")
    assert handle.pilot is None
    assert [each["event"] for each in handle.history] == ["started", "chosen"]
    (record,) = caplog.records
    assert "nothing is sent between ranks" in record.getMessage()
    nn.functional.cross_entropy(model(IMAGES), LABELS).backward()
    optimizer.step()
    saved = handle.whole.to_json()
    handle.close()
    again = gradsync.attach(model, optimizer, type(handle.whole).from_json(saved))
    assert again.plan.digest == handle.plan.digest
    again.close()


def test_a_profile_holds_medians_of_whole_iterations():
    device = Clock()
    profile = Profile(device)
    for forward, backward, update in ((1.0, 2.0, 4.0), (9.0, 9.0, 9.0), (1.5, 3.0, 5.0)):
        profile.opened()
        device.now += 0.5
        profile.forward_ended()  # of a micro-batch that is not sent
        device.now += forward - 0.5
        profile.forward_ended()
        device.now += backward
        profile.ready("second")
        device.now += 1.0
        profile.ready("first")
        profile.backward_ended()
        device.now += update / 2
        profile.forward_ended()  # of an evaluation
        device.now += update / 2
    profile.opened()
    profile.ready("first")  # of an iteration that has not ended
    assert profile.seconds() == Seconds(1.5, {"second": 4.5, "first": 5.5}, 5.0)


def test_a_model_that_is_not_called_itself_has_no_end_of_forward():
    device = Clock()
    profile = Profile(device)
    profile.opened()
    device.now = 2.0
    profile.ready("first")
    profile.backward_ended()
    profile.opened()
    assert profile.seconds() == Seconds(2.0, {"first": 2.0}, 0.0)


def test_a_workload_is_that_of_the_slowest_rank_and_unused_parameters_come_last():
    ranks = [
        Seconds(1.0, {"second": 2.0, "first": 6.0}, 0.5),
        Seconds(2.0, {"second": 4.0}, 0.25),  # it does not use the other one
    ]
    made = workload("net", parameters(), ranks, statistics=7)
    assert [(layer.name, layer.backward_seconds) for layer in made.layers] == [
        ("second", 2.0),
        ("first", 2.0),
        ("never", 0.0),
    ]
    assert (made.forward_seconds, made.update_seconds, made.statistics) == (2.0, 0.5, 7)
    assert {layer.bytes for layer in made.layers} == {12}


@pytest.mark.usefixtures("alone")
def test_candidates_come_with_the_fastest_first_and_of_equals_the_one_with_fewer_messages(monkeypatch):
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 4)
    names = [f"layer{number}" for number in range(6)]
    layers = [{"name": name, "bytes": 4000, "backward_seconds": 1e-3} for name in names]
    of_net = Workload(name="net", forward_seconds=2e-3, update_seconds=1e-3, layers=layers)
    found = candidates(("wfbp", "single"), of_net, None, Linear(5e-3, 0.0))
    assert [each.scheme for each in found] == ["single", "wfbp"]
    # 2 ms forward, 6 ms backward, one message of 5 ms, 1 ms update
    assert found[0].seconds == pytest.approx(14e-3)
    found = candidates(("single", "wfbp"), of_net, "a=1e-5,b=1e-7", None)
    assert [each.scheme for each in found] == ["wfbp", "single"]
    found = candidates(("wfbp", "single"), of_net, None, Linear(0.0, 0.0))
    assert [(each.scheme, each.seconds) for each in found] == [
        ("single", pytest.approx(9e-3)),
        ("wfbp", pytest.approx(9e-3)),
    ]


def test_a_trial_takes_turns_and_does_not_time_the_first_iteration_of_a_block():
    device = Clock()
    trial = Trial(device, steps=2, rounds=1)
    plans = []
    while (plan := trial.border()) is not None:
        first = len(plans) % 3 == 0
        plans.append(plan)
        device.now += 100.0 if first else 1.0 + plan
    assert plans == [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0]
    assert trial.seconds() == [[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]


def test_a_verdict_is_the_median_of_pairs_and_one_long_iteration_does_not_decide():
    faster = [[4.0, 4.0, 4.0], [2.0, 2.0, 90.0], [2.0, 2.0, 2.0], [4.0, 4.0, 4.0]]
    (old, new, ratio, low, high) = verdict([faster * 3, faster * 3])
    assert (old, new, ratio) == (4.0, 2.0, 0.5)
    assert (low, high) == (0.5, 0.5)
    slower = [[value * factor for value in block] for block, factor in zip(faster, (1, 4, 4, 1), strict=True)]
    assert verdict([faster, slower]).ratio == pytest.approx(1.25)  # means over ranks: 4 and (2 + 8) / 2
    assert verdict([slower]).low is None  # two pairs

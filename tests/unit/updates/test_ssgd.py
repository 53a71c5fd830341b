"""Plans of synchronous SGD: messages in a narrower type, loss scaling, batch-norm statistics."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gradsync import optimizers, schedules, updates
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError
from gradsync.plan import Collective, Plan, Ref
from gradsync.plan.workload import Workload
from gradsync.updates import ssgd
from tiny_workloads import workload

COST = Linear(4.0, 0.002)  # seconds, seconds a byte
SIZES = [400, 2000, 1200, 400]  # bytes
ELEMENTS = sum(SIZES) // 4
LR = 0.1
TURNS = 5
HALF = 2.0**-10  # spacing of float16 at 1


def net(statistics: int = 0, dtype: str = "float32") -> Workload:
    return workload(SIZES, [1.0, 2.0, 3.0, 4.0], dtype=dtype).model_copy(update={"statistics": statistics})


def planned(
    schedule: str = "wfbp", ranks: int = 2, *, load: Workload | None = None, wire: str = "", **how: Any
) -> Plan:
    small = {key: 1600 for key in schedules.options(schedule) if key.endswith("_bytes")}
    scheme = schemes.Scheme(name=schedule, options=small, wire=wire)
    return schemes.plan(scheme, load or net(), COST, ranks, lr=LR, **how)


def names(plan: Plan) -> list[str]:
    return [op.name for op in plan.roles[0].flat]


def without(plan: Plan, name: str) -> Plan:
    """The plan with one operation less; what waited for it waits for what it waited for."""
    (role,) = plan.roles
    (gone,) = [op for op in role.flat if op.name == name]
    body = tuple(
        dataclasses.replace(
            op, after=tuple(a for a in op.after if a != name) + (gone.after if name in op.after else ())
        )
        for op in role.flat
        if op is not gone
    )
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def gradient(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    return np.random.default_rng((rank, turn)).normal(size=ELEMENTS).astype(parameter.dtype)


def averaged(ranks: int, momentum: float = 0.0, skipped: int | None = None) -> np.ndarray:
    """Parameters after plain SGD on the mean of the ranks' gradients, in float64."""
    parameter, velocity = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
    for turn in range(TURNS):
        if turn != skipped:
            mean = np.mean([gradient(rank, turn, parameter) for rank in range(ranks)], axis=0)
            velocity = momentum * velocity + mean
            parameter = parameter - LR * velocity
    return parameter


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("wire", ["", "float16", "bfloat16"])
@pytest.mark.parametrize("schedule", schedules.names("ssgd"))
def test_every_combination_passes_the_check_and_survives_json(schedule, wire, ranks):
    for scaling in (False, True):
        for momentum in (0.0, 0.9):
            plan = planned(schedule, ranks, load=net(statistics=6), wire=wire, loss_scaling=scaling, momentum=momentum)
            check(plan)
            assert Plan.from_json(plan.to_json()) == plan


# The type that travels


def test_a_narrow_message_is_narrowed_before_and_widened_after():
    assert names(planned("single", wire="float16"))[-4:] == ["narrow0", "message0", "widen0", "update"]
    plan = planned("wfbp", wire="bfloat16")
    operations = {op.name: op for op in plan.roles[0].flat}
    for number, size in enumerate(SIZES):
        narrow, message, widen = (operations[f"{verb}{number}"] for verb in ("narrow", "message", "widen"))
        assert narrow.after == (f"ready:{plan.tensors[number].name}",)
        assert {op.lane for op in (narrow, message, widen)} == {schedules.DEFAULT_LANE}
        assert narrow.reads == widen.writes
        assert narrow.writes == message.reads == message.writes == widen.reads
        assert plan.bytes_of(message.writes) == size / 2
        assert narrow.arguments == {"scale": 0.5}
    assert plan.messages() == planned("wfbp").messages()
    assert operations["update"].arguments["scale"] == 1.0


def test_gradients_that_travel_in_their_own_type_are_not_cast():
    assert names(planned(wire="float32")) == names(planned())
    assert names(planned(load=net(dtype="float16"), wire="float16")) == names(planned())
    assert "wire" not in planned(wire="float32").buffer


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("lost", ["narrow1", "message1", "widen1", "widen3"])
def test_a_step_of_a_narrow_message_that_is_missing_is_found(lost, ranks):
    with pytest.raises(PlanError):
        check(without(planned("wfbp", ranks, wire="float16"), lost))


@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_float16_messages_give_the_mean_within_their_rounding(ranks):
    plan = planned("mgwfbp", ranks, wire="float16")
    parameters = [values["parameter"] for values in evaluate(plan, TURNS, gradient, {})]
    for other in parameters[1:]:
        np.testing.assert_array_equal(parameters[0], other)
    # each term and each partial sum is below 4 and rounded once
    bound = LR * TURNS * 2 * ranks * 4 * HALF / 2
    assert 0 < np.abs(parameters[0] - averaged(ranks)).max() < bound


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_without_rounding_the_narrow_plan_is_the_mean(wire, momentum):
    plan = planned("optimal", 3, wire=wire, momentum=momentum)
    (ended, *_) = evaluate(plan, TURNS, gradient, {}, dtype="float64")
    np.testing.assert_allclose(ended["parameter"], averaged(3, momentum), rtol=0, atol=1e-13)


def test_schedules_see_the_bytes_that_travel():
    load = workload([800] * 8, [3.0] * 8)
    for wire, together in (("", 2), ("float32", 2), ("float16", 4), ("bfloat16", 4)):
        messages = planned("fixed_buckets", load=load, wire=wire).messages()
        assert [len(message) for message in messages] == [together] * (8 // together)
    # and in the dynamic program too: the plan is that of a model of half the size
    halved = workload([400] * 8, [3.0] * 8, dtype="float16")
    assert planned("optimal", load=load, wire="float16").messages() == planned("optimal", load=halved).messages()
    assert planned("optimal", load=load, wire="float16").messages() != planned("optimal", load=load).messages()


def test_odd_bytes_cannot_travel_in_another_type():
    with pytest.raises(InputError, match="'tiny': sizes are no whole elements: can't travel as float16"):
        planned(load=workload([3, 5], [1.0, 1.0]), wire="float16")


# Statistics of batch normalisation


def test_statistics_are_the_first_message():
    plan = planned("wfbp", load=net(statistics=6))
    first, *others = plan.communications()
    assert isinstance(first, Collective)
    assert (first.kind, first.root, first.postcondition) == ("broadcast", 0, "copy")
    assert first.reads == first.writes == (Ref("statistics", 0, 6),)
    assert first.after == ("forward",)
    assert [op.name for op in others] == ["message0", "message1", "message2", "message3"]
    (forward,) = [op for op in plan.roles[0].flat if op.name == "forward"]
    assert forward.writes == first.writes
    assert set(forward.after_previous) == {"update", "statistics"}
    assert len(plan.messages()) == 4  # of gradients


@pytest.mark.parametrize(("elements", "wanted"), [(6, False), (0, True), (0, False)])
def test_without_batch_normalisation_or_asked_not_to_nothing_is_broadcast(elements, wanted):
    plan = planned("wfbp", load=net(statistics=elements), statistics=wanted)
    assert {op.kind for op in plan.communications()} == {"all_reduce"}
    assert "statistics" not in plan.buffer
    assert plan.digest == planned("wfbp").digest


def test_all_ranks_get_the_first_ones_statistics():
    """Each rank's forward would write its own; the oracle has no forward."""
    plan = planned("wfbp", 3, load=net(statistics=6))
    ended = evaluate(plan, 1, gradient, {"statistics": np.arange(6.0)})
    for values in ended:
        np.testing.assert_array_equal(values["statistics"], np.arange(6.0))


# Loss scaling


def test_a_loss_scale_is_the_last_thing_that_the_update_writes():
    plan = planned("wfbp", loss_scaling=True, momentum=0.9)
    update = plan.roles[0].flat[-1]
    assert update.kernel == "sgd_scaled"
    assert [ref.buffer for ref in update.writes] == ["parameter", "momentum", "scaler"]
    assert plan.buffer["scaler"].elements == 3
    assert "scaler" not in planned("wfbp", momentum=0.9).buffer


@pytest.mark.parametrize("wire", ["", "float16"])
def test_scaled_gradients_give_the_mean_and_one_rank_makes_all_skip(wire):
    plan = planned("mgwfbp", 2, wire=wire, loss_scaling=True, momentum=0.9)
    first = {"scaler": np.array([256.0, 0.0, 0.0])}
    spoilt = 2
    scale = [256.0] * (spoilt + 1) + [128.0] * (TURNS - spoilt - 1)

    def scaled(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
        values = scale[turn] * gradient(rank, turn, parameter)
        if (rank, turn) == (1, spoilt):
            values[7] = np.inf
        return values

    expected = averaged(2, 0.9, skipped=spoilt)
    for values in evaluate(plan, TURNS, scaled, first, dtype="float64"):
        np.testing.assert_allclose(values["parameter"], expected, rtol=0, atol=1e-13)
        assert values["scaler"].tolist() == [128.0, 2.0, 1.0]


# Buffers and defaults


@pytest.mark.parametrize(("dtype", "norm"), [("float16", "float32"), ("bfloat16", "float32"), ("float32", "float32")])
def test_momentum_is_of_the_type_of_the_gradients_and_a_norm_no_narrower_than_float32(dtype, norm):
    plan = planned(load=net(dtype=dtype), momentum=0.9, clip_norm=1.0)
    assert {plan.buffer[name].dtype for name in ("gradient", "parameter", "momentum")} == {dtype}
    assert plan.buffer["norm"].dtype == norm
    wide = planned(load=workload([800, 400], [1.0, 1.0], dtype="float64"), momentum=0.9, clip_norm=1.0)
    assert {buffer.dtype for buffer in wide.buffers} == {"float64"}


def test_a_plan_unless_told_otherwise_is_plain_sgd_that_follows_the_statistics_of_rank_0():
    messages = tuple(schedules.Message(i, i) for i in range(4))
    plan = updates.plan("ssgd", "plain", net(statistics=6), messages, 2)
    update = plan.roles[0].flat[-1]
    assert (update.kernel, update.arguments) == ("sgd", {"lr": 0.01, "momentum": 0.0, "scale": 0.5})
    assert plan.communications()[0].name == "statistics"
    assert set(plan.buffer) == {"gradient", "parameter", "statistics"}
    assert {op.algorithm for op in plan.communications()} == {"native"}


def test_the_update_itself_plans_the_plain_step():
    messages = tuple(schedules.Message(i, i) for i in range(4))
    sgd = optimizers.get("sgd", momentum=0.9)
    plain = ssgd.plan("plain", net(statistics=6), messages, 2, optimizer=sgd)
    assert plain == updates.plan("ssgd", "plain", net(), messages, 2, optimizer=sgd)
    assert set(plain.buffer) == {"gradient", "parameter", "momentum"}


def test_an_update_that_does_not_exist_is_refused_with_those_that_do():
    assert "ssgd" in updates.names()
    assert updates.get("ssgd") is ssgd.plan
    with pytest.raises(InputError, match=r"update .sgd. does not exist; .*there are: .*ssgd"):
        updates.get("sgd")

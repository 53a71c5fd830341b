"""Steps of several micro-batches, and clipped ones: what they may overlap, how long they take, what they compute."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from gradsync import cli, schedules
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.engine.bounds import links_bound_seconds
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Collective, Plan, Ready, Ref
from gradsync.rounds.lowering import lowered
from gradsync.runtime.contenders import silent
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.transforms import accumulation
from gradsync.updates import ssgd
from tiny_workloads import workload

SIZES = [400, 2000, 1200, 400]  # bytes
ELEMENTS = sum(SIZES) // 4
COST = Linear(4.0, 0.002)  # seconds, seconds a byte
LR, TURNS = 0.1, 4


def planned(schedule: str = "wfbp", ranks: int = 2, *, wire: str = "", collective: str = "", **how: Any) -> Plan:
    small = {key: 1600 for key in schedules.options(schedule) if key.endswith("_bytes")}
    scheme = schemes.Scheme(name=schedule, options=small, wire=wire, collective=collective)
    load = workload(SIZES, [1.0, 2.0, 3.0, 4.0], forward=2.0).model_copy(update={"statistics": how.pop("shared", 0)})
    return schemes.plan(scheme, load, COST, ranks, lr=LR, **how)


def changed(plan: Plan, name: str, **values: Any) -> Plan:
    """The plan with fields of one operation changed."""
    (role,) = plan.roles
    body = tuple(dataclasses.replace(op, **values) if op.name == name else op for op in role.body)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def gradient(rank: int, number: int, parameter: np.ndarray) -> np.ndarray:
    return parameter * (rank + 1) / 4 - np.random.default_rng((rank, number)).normal(size=ELEMENTS)


def expected(ranks: int, accumulate: int, clip: float | None, momentum: float = 0.0) -> np.ndarray:
    """Plain SGD on the mean over micro-batches and ranks."""
    parameter, velocity = np.zeros(ELEMENTS), np.zeros(ELEMENTS)
    for turn in range(TURNS):
        numbers = range(turn * accumulate, (turn + 1) * accumulate)
        mean = np.mean([gradient(rank, number, parameter) for rank in range(ranks) for number in numbers], axis=0)
        if clip is not None:
            mean = mean * min(1.0, clip / (np.linalg.norm(mean) + 1e-6))
        velocity = momentum * velocity + mean
        parameter = parameter - LR * velocity
    return parameter


# The plan


@pytest.mark.parametrize("accumulate", [1, 2, 5])
@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("schedule", schedules.names("ssgd"))
def test_every_combination_passes_the_check_and_survives_json(schedule, clip, accumulate):
    for ranks in (1, 3):
        for more in ({}, {"wire": "float16", "loss_scaling": True, "momentum": 0.9, "shared": 6}):
            plan = planned(schedule, ranks, accumulate=accumulate, clip_norm=clip, **more)
            check(plan)
            assert Plan.from_json(plan.to_json()) == plan
            assert plan.passes == accumulate
            assert silent(plan).passes == accumulate
    check(lowered(planned(schedule, 2, collective="ring", accumulate=accumulate, clip_norm=clip)))


@pytest.mark.parametrize("schedule", schedules.names("ssgd"))
def test_nothing_is_sent_before_the_last_micro_batch(schedule):
    plan = planned(schedule, accumulate=3, shared=6)
    body = plan.roles[0].flat
    names = [op.name for op in body]
    assert names[:5] == ["forward0", "backward0", "forward1", "backward1", "forward"]
    assert all(not isinstance(op, Collective) for op in body[:5])
    assert [op.adds for op in body if isinstance(op, Ready)] == [False] + [True] * 5
    assert [op.tensor for op in body[:5] if isinstance(op, Ready)] == [None, None]
    assert body[0].after_previous == ("update", "statistics")
    assert names[5:] == [op.name for op in planned(schedule, shared=6).roles[0].flat][1:]
    assert plan.messages() == planned(schedule).messages()


def test_one_micro_batch_and_no_clipping_is_the_plan_without_them():
    assert planned(accumulate=1, clip_norm=None).digest == planned().digest


@pytest.mark.parametrize("schedule", schedules.names("ssgd"))
def test_a_clipped_update_waits_for_the_norm_and_the_norm_for_every_message(schedule):
    plan = planned(schedule, clip_norm=2.0)
    *_, norm, update = plan.roles[0].flat
    whole = Ref("gradient", 0, ELEMENTS)
    assert (norm.kernel, norm.reads, norm.requires) == ("norm", (whole,), "sum")
    assert norm.after == planned(schedule).roles[0].flat[-1].after
    assert update.after == ("norm",)
    assert update.reads == (whole, *norm.writes)
    assert update.arguments["clip"] == 2.0


FAULTS = {
    "every pass begins anew": ("ready:layer1", {"adds": False}, "lost gradient: 'ready:layer1'"),
    "a pass in between begins anew": ("backward1", {"adds": False}, "lost gradient: 'backward1'"),
    "the first adds to the last step's": ("backward0", {"adds": True}, "nothing has written"),
    "a pass with a part of the gradient": (
        "backward1",
        {"writes": (Ref("gradient", 0, 9),)},
        "a gradient has its place",
    ),
    "a norm that waits for nothing": ("norm", {"after": ()}, "race on gradient"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    name, values, wanted = FAULTS[fault]
    with pytest.raises(PlanError, match=wanted):
        check(changed(planned(accumulate=3, clip_norm=1.0), name, **values))


def test_a_message_that_leaves_before_the_last_micro_batch_is_found():
    plan = planned(accumulate=2)
    (role,) = plan.roles
    place = {op.name: i for i, op in enumerate(role.body)}
    body = list(role.body)
    early = dataclasses.replace(body.pop(place["message0"]), after=("backward0",))
    body.insert(place["backward0"] + 1, early)
    with pytest.raises(PlanError):
        check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(body)),)))


@pytest.mark.parametrize(
    ("how", "wanted"),
    [
        ({"accumulate": 0}, "accumulate 0: a step has at least 1 micro-batch"),
        ({"clip_norm": 0.0}, "clip_norm 0.0: must be positive and finite"),
        ({"clip_norm": float("nan")}, "clip_norm nan: must be positive and finite"),
    ],
)
def test_steps_that_make_no_sense_are_refused(how, wanted):
    with pytest.raises(InputError, match=wanted):
        planned(**how)


# Time


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize(("accumulate", "period"), [(1, 24.0), (3, 38.0)])
def test_two_layers_by_hand(accumulate, period, clip):
    """Forward 2, backward 1 + 4, update 7; messages take 1 + 1 a byte: 9 for the first layer, 5 for the second.

    A micro-batch takes 7. The last one's first message leaves at 3 and ends at 12, when its backward is long over (7),
    so that the second ends at 17 and the update at 24; it waits for both anyhow. Clipped, the norm takes 3 before it.
    """
    load = workload([8, 4], [1.0, 4.0], forward=2.0, update=7.0).model_copy(update={"norm_seconds": 3.0})
    norm = 3.0 if clip else 0.0
    made = schemes.plan(schemes.Scheme(name="wfbp"), load, COST, 2, accumulate=accumulate, clip_norm=clip)
    trace = simulate(made, load, alpha_beta.around(Linear(1.0, 1.0), 2))
    assert trace.iteration_seconds() == pytest.approx(period + norm)
    assert trace.exposed_communication_seconds() == pytest.approx(10.0)  # as without micro-batches
    assert trace.computation_seconds() == pytest.approx(7.0 * accumulate + norm + 7.0)


# Values


@pytest.mark.parametrize("wire", ["", "float16"])
@pytest.mark.parametrize("clip", [None, 0.5, 1e6])
@pytest.mark.parametrize("accumulate", [1, 4])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_oracle_is_sgd_on_the_mean_gradient(ranks, accumulate, clip, wire):
    plan = planned("mgwfbp", ranks, wire=wire, accumulate=accumulate, clip_norm=clip, momentum=0.9)
    for values in evaluate(plan, TURNS, gradient, {}, dtype="float64"):
        reference = expected(ranks, accumulate, clip, 0.9)
        np.testing.assert_allclose(values["parameter"], reference, rtol=0, atol=1e-12)
    assert np.abs(expected(ranks, 4, 0.5, 0.9) - expected(ranks, 4, None, 0.9)).max() > 1e-2


def test_a_loss_scale_is_undone_before_the_norm_is_cut():
    plan = planned("single", 2, accumulate=2, clip_norm=0.5, loss_scaling=True)
    first = {"scaler": np.array([256.0, 0.0, 0.0])}
    buffers = evaluate(plan, TURNS, lambda *arguments: 256.0 * gradient(*arguments), first, dtype="float64")
    np.testing.assert_allclose(buffers[0]["parameter"], expected(2, 2, 0.5), rtol=0, atol=1e-12)


# The command line


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = cli.main([str(part) for part in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def load_file(tmp_path):
    path = tmp_path / "workload.json"
    load = workload(SIZES, [1.0, 2.0, 3.0, 4.0], forward=2.0, update=1.0)
    path.write_text(load.model_copy(update={"norm_seconds": 0.5}).to_json())
    return path


def test_a_plan_of_the_command_line_has_them_and_its_bound_knows(capsys, tmp_path, load_file):
    common = ("plan", "--workload", load_file, "--allreduce", "a=4,b=0.002", "--schedule", "mgwfbp", "--json")
    output = tmp_path / "plan.json"
    status, output_text, _ = run(capsys, *common, "--accumulate", 3, "--clip-norm", 0.5, "--output", output)
    assert status == 0
    plan = Plan.from_json(output.read_text())
    assert plan.passes == 3
    assert plan.roles[0].flat[-1].arguments["clip"] == 0.5
    three, one = json.loads(output_text), json.loads(run(capsys, *common)[1])
    for key in ("iteration_seconds", "hard_bound_seconds", "model_bound_seconds"):
        assert three[key] == pytest.approx(one[key] + 2 * 12.0 + 0.5)  # two passes more, and the norm
    assert three["exposed_communication_seconds"] == pytest.approx(one["exposed_communication_seconds"])


def test_links_are_busy_after_the_last_micro_batch_only():
    load, links = workload([32, 32], [1.0, 2.0], forward=3.0), (parse("switch:2"), Speeds(0.0, 1.0))
    messages = (Message(0, 1, "lane0"),)
    bounds = []
    for micro_batches in (1, 3):
        plan = accumulation.accumulate(ssgd.plan("steps", load, messages, 2, algorithm="ring"), micro_batches)
        bounds.append(links_bound_seconds(plan, load, *links))
        iteration = simulate(plan, load, Network({}), topology=links[0], speeds=links[1]).iteration_seconds()
        assert bounds[-1] <= iteration * (1 + 1e-12)
    assert bounds == pytest.approx([4.0 + 64.0, 2 * 6.0 + 4.0 + 64.0])


@pytest.mark.parametrize("command", ["plan", "train"])
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--accumulate", 0), "--accumulate 0: at least 1"),
        (("--clip-norm", -1), "--clip-norm -1.0: must be positive and finite"),
    ],
)
def test_the_command_line_refuses_them(capsys, tmp_path, load_file, command, arguments, wanted):
    given = ("--schedule", "wfbp")
    given += ("--workload", load_file, "--allreduce", "a=4,b=1") if command == "plan" else ("--output", tmp_path)
    status, _, message = run(capsys, command, *given, *arguments)
    assert status == 2
    assert wanted in message
    assert "Traceback" not in message


@pytest.mark.parametrize(
    ("how", "arguments", "wanted"),
    [
        ({"accumulate": 2}, (), "has 2 micro-batch(es) a step, --accumulate is 1: give --accumulate 2"),
        ({}, ("--accumulate", 2), "has 1 micro-batch(es) a step, --accumulate is 2"),
        ({"clip_norm": 2.0}, (), "clips at norm 2, --clip-norm is not given: give --clip-norm 2"),
        ({"clip_norm": 2.0}, ("--clip-norm", 3), "clips at norm 2, --clip-norm is 3"),
        ({}, ("--clip-norm", 3), "clips nothing, --clip-norm is 3: leave it out"),
        ({}, ("--accumulate", 100), "x 100 micro-batches is more than the 1438 training samples"),
    ],
)
def test_a_launch_and_its_plans_must_agree(capsys, tmp_path, how, arguments, wanted):
    path = tmp_path / "plan.json"
    path.write_text(planned(**how).to_json())
    status, _, message = run(capsys, "train", "--plan", path, "--output", tmp_path / "run", *arguments)
    assert status == 2
    assert wanted in message

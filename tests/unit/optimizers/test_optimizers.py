"""Every optimizer of the registry is torch's, in twenty steps, by every update; and what a plan says of it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradsync import optimizers, updates
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.kernels import KERNELS
from gradsync.learning_rates import LearningRate
from gradsync.plan import Plan
from gradsync.runtime.kernels import EXECUTED
from gradsync.runtime.torch_optimizers import named
from gradsync.schedules import Message
from tiny_workloads import workload

SIZES = [400, 2000, 1200, 408]  # bytes
ELEMENTS = sum(SIZES) // 8
TURNS, RANKS = 20, 3
COST = Linear(2.0, 0.002)
SETTINGS: dict[str, list[dict[str, float]]] = {
    "sgd": [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.9, "weight_decay": 0.1}],
    "adam": [{}, {"weight_decay": 0.1}, {"beta1": 0.0, "beta2": 0.5, "eps": 0.1}],
    "adamw": [{}, {"weight_decay": 0.1}],
    "lars": [{"trust": 0.1}, {"trust": 0.1, "weight_decay": 0.1, "eps": 0.1}, {"momentum": 0.0, "weight_decay": 0.1}],
    "lamb": [{}, {"weight_decay": 0.1}, {"beta1": 0.0, "beta2": 0.5, "eps": 0.1}],
}
CASES = [(name, {"lr": 0.05, **each}) for name in optimizers.names() for each in SETTINGS.get(name, [{}])]
BY_UPDATE = [
    (name, each, update)
    for name, each in CASES
    for update in updates.names()
    if not (optimizers.get(name).ratios and updates.pieces(update))
]
CLIPPED = [(name, each) for name, each in CASES if "clip" in KERNELS[name].arguments]


def net(dtype: str = "float64", **kernels: float):
    return workload(SIZES, [1.0, 2.0, 3.0, 4.0], update=1.0, dtype=dtype, kernels=kernels)


def planned(name: str, update: str = "ssgd", ranks: int = RANKS, load: Any = None, **settings: Any) -> Plan:
    scheme = schemes.Scheme(name="mgwfbp", update=update)
    return schemes.plan(scheme, load or net(), COST, ranks, optimizer=name, **settings)


def gradient(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    return np.random.default_rng((rank, turn)).normal(size=len(parameter)) + 0.1 * parameter


def by_torch(name: str, settings: dict[str, float], rate: LearningRate | None = None, clip: float | None = None):
    """Parameters after twenty steps of torch's optimizer, by the mean of the ranks' gradients."""
    counts = [size // 8 for size in SIZES]
    weights = [torch.nn.Parameter(each) for each in torch.linspace(-1, 1, ELEMENTS, dtype=torch.float64).split(counts)]
    kind, arguments = optimizers.get(name, **settings).torch
    optimizer = named(kind)(weights, **arguments)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, rate or (lambda turn: 1.0))
    for turn in range(TURNS):
        each = [gradient(rank, turn, torch.cat(weights).detach().numpy()) for rank in range(RANKS)]
        for weight, mean in zip(weights, torch.from_numpy(np.mean(each, axis=0)).split(counts), strict=True):
            weight.grad = mean
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(weights, clip)
        optimizer.step()
        scheduler.step()
    return torch.cat(weights).detach().numpy()


def trained(plan: Plan, **how: Any) -> list[np.ndarray]:
    ends = evaluate(plan, TURNS, gradient, {"parameter": np.linspace(-1, 1, ELEMENTS)}, **how)
    return [end["parameter"] for end in ends]


@pytest.mark.parametrize(("name", "settings", "update"), BY_UPDATE)
def test_twenty_steps_are_torchs_by_every_update(name, settings, update):
    plan = planned(name, update, **settings)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    expected = by_torch(name, settings)
    for parameters in trained(plan):
        np.testing.assert_allclose(parameters, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clip", [0.5, 4.0])
@pytest.mark.parametrize(("name", "settings"), CLIPPED)
def test_clipped_steps_with_micro_batches_are_torchs(name, settings, clip):
    plan = planned(name, clip_norm=clip, **settings)
    check(plan)
    for parameters in trained(plan):
        np.testing.assert_allclose(parameters, by_torch(name, settings, clip=clip), rtol=0, atol=1e-12)
    check(planned(name, clip_norm=clip, accumulate=3, **settings))


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_schedule_is_no_part_of_the_plan_and_is_torchs(name, settings):
    rate = LearningRate("cosine", 3, TURNS)
    for parameters in trained(planned(name, **settings), rate=rate):
        np.testing.assert_allclose(parameters, by_torch(name, settings, rate), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", optimizers.names())
def test_steps_that_are_broken_off_go_on_with_their_number(name):
    plan, whole = planned(name), trained(planned(name))
    before = evaluate(plan, 7, gradient, {"parameter": np.linspace(-1, 1, ELEMENTS)})
    after = evaluate(plan, TURNS - 7, gradient, before, first=7)
    for end, expected in zip(after, whole, strict=True):
        np.testing.assert_array_equal(end["parameter"], expected)


@given(
    st.sampled_from(CLIPPED),
    st.integers(0, 50),
    st.floats(0.01, 4),
    st.sampled_from([0.0, 0.3, 100.0]),
    st.sampled_from([1, 5, 70_000]),
)
def test_what_is_executed_is_what_the_oracle_computes(case, turn, scale, clip, elements):
    name, settings = case
    optimizer = optimizers.get(name, **settings)
    random = np.random.default_rng((turn, elements))
    reads = [random.normal(size=elements)]
    reads += [np.array([np.linalg.norm(reads[0])])] if clip else []
    writes = [random.normal(size=elements) ** 2 for _ in range(1 + len(optimizer.kept))]
    arguments = KERNELS[name].at({**optimizer.arguments, "scale": scale, "clip": clip}, turn, 0.5)
    executed = [torch.from_numpy(each.copy()) for each in writes]
    EXECUTED[name]([torch.from_numpy(each) for each in reads], executed, **arguments)
    KERNELS[name].compute(reads, writes, **arguments)
    for one, other in zip(writes, executed, strict=True):
        np.testing.assert_allclose(other.numpy(), one, rtol=1e-11, atol=1e-13)


# What a plan says, and what is refused


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_the_optimizer_is_read_off_its_plan(name, settings):
    assert optimizers.of(planned(name, **settings)) == optimizers.get(name, **settings)
    held = {buffer.name for buffer in planned(name, **settings).buffers}
    ratios = ["ratios"] if optimizers.get(name).ratios else []
    assert held == {"gradient", "parameter", *ratios, *(kept.name for kept in optimizers.get(name, **settings).kept)}


def test_a_plan_of_plain_sgd_is_what_it_was():
    """A decay of 0 is left out: no plan has another hash than before there were optimizers."""
    assert planned("sgd").roles[0].flat[-1].arguments == {"lr": 0.01, "momentum": 0.0, "scale": 1 / RANKS}


def edited(plan: Plan, **changes: Any) -> Plan:
    """The plan with another update."""
    (role,) = plan.roles
    body = tuple(dataclasses.replace(op, **changes) if op.name == "update" else op for op in role.flat)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_moments_that_are_not_its_own_are_found(name):
    plan = planned(name)
    update = plan.roles[0].flat[-1]
    parameter, first, _ = update.writes
    with pytest.raises(PlanError, match="reads 1 and writes 3 ranges, not 1 and 2"):
        check(edited(plan, writes=(parameter, first)))
    with pytest.raises(PlanError, match="overlap"):
        check(edited(plan, writes=(parameter, first, first)))
    with pytest.raises(PlanError, match="has no argument 'turn'"):
        check(edited(plan, arguments={**update.arguments, "turn": 3.0}))
    body = tuple(op for op in plan.roles[0].flat if op.verb != "collective")
    lost = dataclasses.replace(plan.roles[0], body=(*body[:-1], dataclasses.replace(body[-1], after=())))
    with pytest.raises(PlanError, match="missing gradient"):
        check(dataclasses.replace(plan, roles=(lost,)))


def of_two_updates(name: str, swapped: bool) -> Plan:
    """Two steps in a turn, of which the second may take the moments for one another."""
    plan = planned(name)
    (role,) = plan.roles
    body: list[Any] = []
    for number in range(2):
        for op in role.flat:
            waits = {key: tuple(f"{each}.{number}" for each in getattr(op, key)) for key in ("after", "after_previous")}
            if number and op.verb == "need":
                waits = {"after": ("update.0",), "after_previous": ()}
            elif op.verb == "need":
                waits["after_previous"] = ("update.1",)
            writes = op.writes
            if op.name == "update" and number and swapped:
                writes = (writes[0], writes[2], writes[1])
            body.append(dataclasses.replace(op, name=f"{op.name}.{number}", writes=writes, **waits))
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(body)),))


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_second_moment_is_no_first_one(name):
    check(of_two_updates(name, swapped=False))
    with pytest.raises(PlanError, match="takes the momentum of another version"):
        check(of_two_updates(name, swapped=True))


def test_what_does_not_go_together_is_refused_by_name():
    with pytest.raises(InputError, match=r"optimizer 'adm' does not exist; did you mean adam"):
        optimizers.get("adm")
    with pytest.raises(InputError, match=r"optimizer 'adam' has no setting 'momentum'; it has: lr=0.001, beta1=0.9"):
        planned("adam", momentum=0.9)
    with pytest.raises(PlanError, match="needs eps of at least 6e-08, not 1e-08, which is 0 in float16"):
        check(planned("adam", load=net("float16")))
    with pytest.raises(PlanError, match="needs beta2 from 0 to below 1, not 1"):
        check(planned("adamw", beta2=1.0))


def test_a_scheme_with_an_optimizer_of_its_own_takes_no_other():
    own = schemes.Scheme(name="own", schedule="wfbp", optimizer="adam")
    own.refuse_nonsense("here")
    known = {"own": own, "wfbp": schemes.Scheme(name="wfbp")}
    assert [each.name for each in schemes.pick(known, None, "here", 2, optimizer="adam")] == ["own", "wfbp"]
    assert [each.name for each in schemes.pick(known, None, "here", 2, optimizer="sgd")] == ["wfbp"]
    with pytest.raises(InputError, match="'own' is one of optimizer 'adam', and gradients are applied by 'sgd'"):
        schemes.pick(known, ["own"], "here", 2, optimizer="sgd")
    with pytest.raises(InputError, match="here, scheme 'bad': optimizer 'nosuch' does not exist"):
        schemes.Scheme(name="bad", schedule="wfbp", optimizer="nosuch").refuse_nonsense("here")


def test_an_update_takes_its_share_of_sgds_seconds_or_what_was_measured_of_its_kernel():
    free = Network({kind: Linear(0.0, 0.0) for kind in ("all_reduce", "all_gather", "reduce_scatter")})

    def period(plan: Plan, load: Any) -> float:
        return simulate(plan, load, free).iteration_seconds() - load.forward_seconds - load.backward_seconds

    for momentum in (0.0, 0.9):
        assert period(planned("sgd", momentum=momentum), net()) == pytest.approx(1.0)
    assert period(planned("adam"), net()) == pytest.approx(7 / 5)  # of 8-byte numbers, 7 are moved and not 5
    assert period(planned("adam"), net(adam=1e-3)) == pytest.approx(7 * ELEMENTS * 8 * 1e-3)
    messages = (Message(0, 1), Message(2, 3))
    parts = updates.plan("by_message", "parts", net(), messages, 2, optimizer=optimizers.get("adam"))
    alone = updates.plan("ssgd", "whole", net(), messages, 2, optimizer=optimizers.get("adam"))
    assert period(parts, net()) <= period(alone, net())

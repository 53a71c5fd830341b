"""LARS and LAMB against NumPy, tensor by tensor, and which plans of them are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from gradsync import updates
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.configuration.training import Training
from gradsync.costs import Linear, Network
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Plan
from tiny_workloads import workload

COUNTS = [50, 250, 1, 150, 51]  # elements of the tensors, in backward order
TURNS, RANKS, LR = 20, 3, 0.05
COST = Linear(2.0, 0.002)
LAMB = {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3, "weight_decay": 0.1}
LARS = {"trust": 0.1, "momentum": 0.8, "eps": 1e-3, "weight_decay": 0.1}
SETTINGS = {"lars": LARS, "lamb": LAMB}
WHOLE = [update for update in updates.names() if not updates.pieces(update)]


def net(**more: Any):
    return workload([8 * count for count in COUNTS], [1.0] * len(COUNTS), update=1.0, dtype="float64", **more)


def planned(name: str, update: str = "ssgd", ranks: int = RANKS, load: Any = None, **settings: Any) -> Plan:
    scheme = schemes.Scheme(name="mgwfbp", update=update)
    settings = {"lr": LR, **SETTINGS[name], **settings}
    return schemes.plan(scheme, load or net(), COST, ranks, optimizer=name, **settings)


def first() -> np.ndarray:
    """Parameters of which the first tensor begins at 0, as a bias does."""
    values = np.linspace(-1, 1, sum(COUNTS))
    values[: COUNTS[0]] = 0
    return values


def gradient(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    return np.random.default_rng((rank, turn)).normal(size=len(parameter)) + 0.1 * parameter


def trained(plan: Plan, turns: int = TURNS) -> list[np.ndarray]:
    return [end["parameter"] for end in evaluate(plan, turns, gradient, {"parameter": first()})]


def by_numpy(step: Callable[..., tuple[Any, ...]], turns: int = TURNS, ranks: int = RANKS) -> np.ndarray:
    """`step(w, g, turn, *state)` -> the new w and state, for each tensor by itself, with the mean of the gradients."""
    edges = np.cumsum([0, *COUNTS])
    weights, states = first(), [(0.0, 0.0)] * len(COUNTS)
    for turn in range(turns):
        mean = sum(gradient(rank, turn, weights) for rank in range(ranks)) / ranks
        for i, (low, high) in enumerate(pairwise(edges)):
            weights[low:high], *state = step(weights[low:high].copy(), mean[low:high], turn, *states[i])
            states[i] = tuple(state)
    return weights


def lars_step(w: np.ndarray, g: np.ndarray, turn: int, v: Any, unused: Any) -> tuple[Any, ...]:
    """Algorithm 1 of You, Gitman and Ginsburg."""
    size, steep = np.sqrt(w @ w), np.sqrt(g @ g)
    rate = LARS["trust"] * size / (steep + LARS["weight_decay"] * size + LARS["eps"]) if size * steep else 1.0
    v = LARS["momentum"] * v + LR * rate * (g + LARS["weight_decay"] * w)
    return w - v, v, unused


def lamb_step(w: np.ndarray, g: np.ndarray, turn: int, m: Any, v: Any) -> tuple[Any, ...]:
    """Algorithm 2 of You et al."""
    m = LAMB["beta1"] * m + (1 - LAMB["beta1"]) * g
    v = LAMB["beta2"] * v + (1 - LAMB["beta2"]) * g**2
    mean, square = m / (1 - LAMB["beta1"] ** (turn + 1)), v / (1 - LAMB["beta2"] ** (turn + 1))
    u = mean / (np.sqrt(square) + LAMB["eps"]) + LAMB["weight_decay"] * w
    size, length = np.sqrt(w @ w), np.sqrt(u @ u)
    return w - LR * (size / length if size * length else 1.0) * u, m, v


STEPS = {"lars": lars_step, "lamb": lamb_step}


@pytest.mark.parametrize("update", WHOLE)
@pytest.mark.parametrize("name", STEPS)
def test_twenty_steps_are_numpys(name, update):
    plan = planned(name, update)
    check(plan)
    for parameters in trained(plan):
        np.testing.assert_allclose(parameters, by_numpy(STEPS[name]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_tensors_that_begin_at_0_are_trained(name):
    before, after = first()[: COUNTS[0]], trained(planned(name), 1)[0][: COUNTS[0]]
    assert not before.any()
    assert np.abs(after).min() > 0


@pytest.mark.parametrize("name", STEPS)
def test_micro_batches_and_a_narrow_wire_weigh_norms_too(name):
    """Three passes of a rank are three ranks; a wire of float64 changes nothing but who divides."""
    several = planned(name, ranks=1, accumulate=3)
    check(several)

    def in_turn(rank: int, number: int, parameter: np.ndarray) -> np.ndarray:
        return gradient(number % 3, number // 3, parameter)

    (end,) = evaluate(several, TURNS, in_turn, {"parameter": first()})
    np.testing.assert_allclose(end["parameter"], by_numpy(STEPS[name]), rtol=0, atol=1e-12)
    narrow = schemes.plan(
        schemes.Scheme(name="mgwfbp", wire="float32"), net(), COST, RANKS, optimizer=name, lr=LR, **SETTINGS[name]
    )
    check(narrow)
    for parameters in trained(narrow):
        np.testing.assert_allclose(parameters, by_numpy(STEPS[name]), rtol=0, atol=1e-4)


# What is refused


def edited(plan: Plan, name: str, **changes: Any) -> Plan:
    """The plan with another operation of that name."""
    (role,) = plan.roles
    body = tuple(dataclasses.replace(op, **changes) if op.name == name else op for op in role.flat)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def operation(plan: Plan, name: str) -> Any:
    return next(op for op in plan.roles[0].flat if op.name == name)


@pytest.mark.parametrize("name", STEPS)
def test_ratios_of_something_else_are_found(name):
    plan = planned(name)
    ratios, update = operation(plan, "ratios"), operation(plan, "update")
    each = len(ratios.reads) // len(COUNTS)
    swapped = (*ratios.reads[each : 2 * each], *ratios.reads[:each], *ratios.reads[2 * each :])
    with pytest.raises(PlanError, match="needs the ratio of the parameters and of the gradients that it works on"):
        check(edited(plan, "ratios", reads=swapped))
    with pytest.raises(PlanError, match="ratios"):  # those of the turn before, and in the first turn none
        check(edited(edited(plan, "update", after=ratios.after), "ratios", after=("update",)))
    halved = {**update.arguments, "scale": update.arguments["scale"] / 2}
    with pytest.raises(PlanError, match="needs the ratio"):
        check(edited(plan, "update", arguments=halved))
    with pytest.raises(PlanError, match="needs the ratio"):
        check(edited(plan, "ratios", arguments={**ratios.arguments, "weight_decay": 0.0}))


def test_ratios_of_lamb_that_count_other_steps_than_the_update_are_found():
    """The bias of the moments would be taken out as in another step."""
    plan = planned("lamb")
    (role,) = plan.roles
    again = dataclasses.replace(operation(plan, "ratios"), name="again")
    at = role.flat.index(operation(plan, "update"))
    body = (*role.flat[:at], again, dataclasses.replace(role.flat[at], after=("again",)), *role.flat[at + 1 :])
    with pytest.raises(PlanError, match="needs the ratio"):
        check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),)))


@pytest.mark.parametrize("name", STEPS)
def test_ratios_that_nobody_computes_are_found(name):
    plan = planned(name)
    (role,) = plan.roles
    body = tuple(op for op in role.flat if op.name != "ratios")
    lost = dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))
    with pytest.raises(PlanError, match=r"reads ratios\[0:1\], which nothing has written"):
        check(edited(lost, "update", after=operation(plan, "ratios").after))


@pytest.mark.parametrize("name", STEPS)
def test_a_norm_over_two_tensors_is_no_layers(name):
    """Tensors side by side would be one layer of a rate of its own."""
    plan = planned(name)
    whole = dataclasses.replace(
        plan,
        tensors=tuple(
            dataclasses.replace(tensor, start=tensor.start - (i == 1)) if i < 2 else tensor
            for i, tensor in enumerate(
                dataclasses.replace(each, stop=each.stop - 1) if i == 0 else each for i, each in enumerate(plan.tensors)
            )
        ),
    )
    with pytest.raises(PlanError, match=r"works on whole tensors, one by one: .*\[0:50\] is none"):
        check(whole)


def test_what_has_no_whole_tensors_is_refused_by_name():
    with pytest.raises(InputError, match="'mgwfbp': optimizer 'lars' needs norms of whole tensors, and update 'shard"):
        planned("lars", "sharded")
    with pytest.raises(InputError, match=r"scheme 'bad': .* needs norms of whole tensors"):
        schemes.Scheme(name="bad", schedule="pipelined", optimizer="lamb").refuse_nonsense("here")
    striped = schemes.Scheme(name="striped", update="by_message")
    with pytest.raises(InputError, match="needs the norms of whole tensors, and 'update0' has a part of one"):
        schemes.plan(striped, net(), COST, RANKS, optimizer="lars")
    every = schemes.pick(schemes.discovered(), None, "here", RANKS, optimizer="lars")
    assert len(every) > 5
    assert not any(updates.pieces(scheme.update) for scheme in every)


def test_clipping_and_a_loss_scale_are_refused_by_name():
    for name in STEPS:
        with pytest.raises(InputError, match=f"clipping: kernel '{name}' of 'update' can't clip"):
            planned(name, clip_norm=1.0)
        with pytest.raises(InputError, match=f"--clip-norm: optimizer '{name}' gives each step a length of its own"):
            Training(optimizer=name, clip_norm=1.0).refuse_steps()
        with pytest.raises(InputError, match=f"no kernel '{name}_unscaled' for the update"):
            planned(name, loss_scaling=True)
    with pytest.raises(InputError, match="--trust -1"):
        Training(optimizer="lars", trust=-1.0).refuse_steps()


def test_norms_and_updates_take_what_their_bytes_do():
    free = Network({"all_reduce": Linear(0.0, 0.0)})
    load = net(kernels={}).model_copy(update={"norm_seconds": 1.0})

    def period(plan: Plan) -> float:
        return simulate(plan, load, free).iteration_seconds() - load.forward_seconds - load.backward_seconds

    assert period(planned("lars")) == pytest.approx(2 * 1.0 + 5 / 5)  # norms of parameters and gradients
    assert period(planned("lars", momentum=0.0)) == pytest.approx(2 * 1.0 + 3 / 5)
    assert period(planned("lamb")) == pytest.approx(4 * 1.0 + 7 / 5)  # and of two moments

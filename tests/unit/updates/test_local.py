"""Local SGD, post-local SGD and DiLoCo: values of torch's optimizers, periods, what a period costs, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import methods
import tiny_plans as tiny
from gradsync import optimizers, updates
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network
from gradsync.engine.bounds import Links, both_bounds_seconds, hard_bound_seconds
from gradsync.engine.masters import kept
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.limits import MOST_PERIOD
from methods import ELEMENTS, planned

METHODS = [name for name in updates.methods() if updates.steps(name)]
COMPUTATION = 12.0  # forward and backward of the load, seconds


def ends(plan, turns, gradient=tiny.pull):
    first = {"parameter": tiny.start(ELEMENTS), "centre": tiny.start(ELEMENTS)}
    return evaluate(plan, turns, gradient, first)


def test_these_are_methods_of_local_steps():
    assert METHODS == ["diloco", "local_sgd", "post_local_sgd"]


@pytest.mark.parametrize("inner", ["sgd", "adamw"])
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_values_are_those_of_the_optimizers_of_torch(method, ranks, inner):
    centre, parameters = methods.local(method, ranks, 4, inner)
    buffers = ends(planned(method, ranks, inner), 4)
    for rank, expected in enumerate(parameters):
        np.testing.assert_allclose(buffers[rank]["parameter"], expected, rtol=1e-10, atol=1e-12)
        if method == "diloco":
            np.testing.assert_allclose(buffers[rank]["centre"], centre, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_after_a_synchronisation_all_ranks_hold_the_same(method):
    buffers = ends(planned(method, 3), 2)
    for values in buffers[1:]:
        assert (values["parameter"] == buffers[0]["parameter"]).all()
    moments = [name for name in buffers[0] if name in ("momentum", "first_moment")]
    assert moments
    assert any((values[name] != buffers[0][name]).any() for values in buffers[1:] for name in moments)


def test_with_a_period_of_one_it_is_synchronous_sgd():
    ours = ends(planned("local_sgd", 3, period=1), 5)
    synchronous = updates.plan(
        *("ssgd", "ssgd", methods.load(), methods.WHOLE, 3),
        optimizer=optimizers.get("sgd", lr=methods.LR, momentum=methods.MOMENTUM),
    )
    theirs = evaluate(synchronous, 5, tiny.pull, {"parameter": tiny.start(ELEMENTS)})
    np.testing.assert_allclose(ours[0]["parameter"], theirs[0]["parameter"], rtol=1e-10)


def test_an_outer_step_that_changes_nothing_is_the_mean():
    """An outer rate of 1 without momentum: DiLoCo is then local SGD (Section 2 of its paper)."""
    plain = ends(planned("diloco", 3, "sgd", outer_lr=1.0, outer_momentum=0.0), 3)
    mean = ends(planned("local_sgd", 3), 3)
    np.testing.assert_allclose(plain[2]["parameter"], mean[2]["parameter"], rtol=1e-12)


def test_one_outer_step_by_hand():
    """One parameter at 1, two ranks with gradients 2 and -4, one inner step of rate 1/4: 1/2 and 2, the mean is 5/4.

    The outer gradient is 1 - 5/4 = -1/4. Outer rate 1/2, momentum 1/2: u = -1/4, c = 1 - (-1/4 + 1/2 x -1/4)/2 = 19/16.
    """
    load = methods.workload([8], [1.0], dtype="float64")
    plan = updates.plan(
        *("diloco", "diloco", load, (methods.Message(0, 0),), 2),
        optimizer=optimizers.get("sgd", lr=0.25),
        period=1,
        outer_lr=0.5,
        outer_momentum=0.5,
    )
    buffers = evaluate(
        plan,
        1,
        lambda rank, turn, parameter: np.array([2.0 if rank == 0 else -4.0]),
        {"parameter": np.ones(1), "centre": np.ones(1)},
    )
    assert [(each["parameter"][0], each["centre"][0]) for each in buffers] == [(1.1875, 1.1875)] * 2
    assert buffers[0]["outer_momentum"][0] == -0.25


@pytest.mark.parametrize("method", METHODS)
def test_a_period_sends_the_parameters_once(method):
    """104 bytes take 9 s, once in three iterations of 12 s; updates take nothing."""
    plan = planned(method, 3)
    assert (plan.iterations, plan.passes) == (methods.PERIOD, methods.PERIOD)
    assert [(op.kind, plan.bytes_of(op.writes)) for op in plan.communications()] == [("all_reduce", 8 * ELEMENTS)]
    network = Network({"all_reduce": Linear(9.0, 0.0)})
    trace = simulate(plan, methods.load(), network)
    assert trace.iteration_seconds() == pytest.approx(COMPUTATION + 9.0 / methods.PERIOD)
    assert trace.exposed_communication_seconds() == pytest.approx(9.0 / methods.PERIOD)
    assert trace.computation_seconds() == pytest.approx(COMPUTATION)
    _, model = both_bounds_seconds(plan, methods.load(), Network({"all_reduce": Linear(0.0, 1.0)}))
    assert model == pytest.approx(COMPUTATION + 8 * ELEMENTS / methods.PERIOD)
    assert hard_bound_seconds(plan, methods.load()) == pytest.approx(COMPUTATION)
    wire = 2 * 2 / 3 * 8 * ELEMENTS  # of an all-reduce of three ranks, at a byte per second
    assert hard_bound_seconds(plan, methods.load(), Links(1.0)) == pytest.approx(COMPUTATION + wire / methods.PERIOD)


def test_what_is_trained():
    assert kept(planned("local_sgd", 3)) == ("parameter", (0, 1, 2))
    assert kept(planned("diloco", 3)) == ("centre", (0, 1, 2))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period": 0}, f"a period of 0 iterations: 1 to {MOST_PERIOD}"),
        ({"period": -3}, f"a period of -3 iterations: 1 to {MOST_PERIOD}"),
        ({"period": MOST_PERIOD + 1}, f"a period of {MOST_PERIOD + 1} iterations: 1 to {MOST_PERIOD}"),
    ],
)
def test_a_period_that_makes_no_sense_is_refused(method, options, message):
    with pytest.raises(InputError, match=message):
        planned(method, 2, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"outer_lr": 0.0}, "an outer learning rate of 0: above 0"),
        ({"outer_lr": float("nan")}, "an outer learning rate of nan: above 0"),
        ({"outer_momentum": 1.0}, "an outer momentum of 1: at least 0 and below 1"),
        ({"outer_momentum": -0.1}, "an outer momentum of -0.1"),
    ],
)
def test_an_outer_step_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        planned("diloco", 2, **options)


def test_what_changes_training_is_told():
    for name in METHODS:
        period = updates.options(name)["period"]
        assert f"every {period} iterations" in schemes.Scheme(name=name).changes_training
    assert "every 4 iterations" in schemes.Scheme(name="diloco", update_options={"period": 4}).changes_training
    assert schemes.Scheme(name="wfbp").changes_training == ""


def test_a_plan_of_a_second_phase_says_which_update_comes_before():
    made = schemes.plan(schemes.Scheme(name="post_local_sgd"), methods.load(), Linear(1.0, 1.0), 2)
    assert made.provenance["before"] == "ssgd"
    assert (
        "before" not in schemes.plan(schemes.Scheme(name="local_sgd"), methods.load(), Linear(1.0, 1.0), 2).provenance
    )

"""Masters that serve one worker at a time, and workers that share memory: plain loops, hand-computed steps, times."""

from __future__ import annotations

import numpy as np
import pytest

import methods
import tiny_plans as tiny
from gradsync import optimizers, updates
from gradsync.costs import Linear, Network
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import SharedAdd
from gradsync.schedules import Message
from methods import ELEMENTS, MOMENTUM, planned
from tiny_workloads import workload

TURNS = 5
ORDER = [2, 1, 1, 3, 2, 2, 3, 1, 3, 3, 2, 1, 1, 3, 2]  # five of each of three workers
ELASTIC = {"async_easgd": 0.0, "async_measgd": MOMENTUM}
SERVERS = {"async_sgd": 0.0, "async_msgd": MOMENTUM}


def ends(plan, turns, gradient=tiny.pull, **how):
    first = {"parameter": tiny.start(ELEMENTS), "centre": tiny.start(ELEMENTS)}
    return evaluate(plan, turns, gradient, first, **how)


def arrivals(order):
    return {(0, number, "take"): rank for number, rank in enumerate(order)}


@pytest.mark.parametrize("method", ELASTIC)
def test_a_master_pulls_the_centre_in_the_order_of_arrivals(method):
    centre, parameters = methods.served(ORDER, ELASTIC[method])
    buffers = ends(planned(method, 4), TURNS, arrivals=arrivals(ORDER))
    np.testing.assert_allclose(buffers[0]["centre"], centre, rtol=1e-12, atol=1e-12)
    for values, expected in zip(buffers[1:], parameters, strict=True):
        np.testing.assert_allclose(values["parameter"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", SERVERS)
def test_a_server_applies_gradients_in_the_order_of_arrivals(method):
    buffers = ends(planned(method, 4), TURNS, arrivals=arrivals(ORDER))
    np.testing.assert_allclose(buffers[0]["parameter"], methods.server(ORDER, SERVERS[method]), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("method", ["original_easgd", "original_easgd_no_overlap"])
def test_a_sweep_is_in_order_of_rank(method, workers):
    centre, parameters = methods.round_robin(workers, TURNS)
    buffers = ends(planned(method, 1 + workers), TURNS)
    np.testing.assert_allclose(buffers[0]["centre"], centre, rtol=1e-12, atol=1e-12)
    for values, expected in zip(buffers[1:], parameters, strict=True):
        np.testing.assert_allclose(values["parameter"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["hogwild_sgd", "hogwild_easgd"])
def test_one_worker_of_shared_memory_does_what_it_does_alone(method):
    centre, (parameter,) = methods.hogwild(method, 1, TURNS)
    (buffers,) = ends(planned(method, 1, locked=True), TURNS)
    np.testing.assert_allclose(buffers["centre"], centre, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(buffers["parameter"], parameter, rtol=1e-12, atol=1e-12)


def test_every_addition_reaches_memory_that_is_shared_in_the_oracle():
    buffers = ends(planned("hogwild_sgd", 3), TURNS, gradient=lambda rank, turn, parameter: np.ones_like(parameter))
    np.testing.assert_allclose(buffers[0]["centre"], tiny.start(ELEMENTS) - methods.LR * 3 * TURNS, rtol=1e-12)


@pytest.mark.parametrize("method", ["hogwild_sgd", "hogwild_easgd"])
def test_memory_is_shared_without_a_lock_unless_asked_for(method):
    for options, locked in (({}, False), ({"locked": True}, True)):
        plan = planned(method, 2, **options)
        assert [op.locked for op in plan.roles[0].flat if isinstance(op, SharedAdd)] == [locked]
        assert plan.buffer["centre"].shared


def of_one_parameter(method, ranks, **options):
    load = workload([8], [1.0], dtype="float64")
    return updates.plan(
        method, method, load, (Message(0, 0),), ranks, optimizer=optimizers.get("sgd", lr=0.25), **options
    )


def test_momentum_of_a_worker_by_hand():
    """lr 1/4, rho 1, mu 1/2, a gradient of 2 each time. w = c = 1 at first.

    Step 1: v = 2, w = 1 - 2/4 = 1/2, c = 1. Step 2: v = 1/2 * 2 + 2 = 3, w = 1/2 - (3 + (1/2 - 1))/4 = -1/8,
    c = 1 + (1/2 - 1)/4 = 7/8.
    """
    plan = of_one_parameter("async_measgd", 2, rho=1.0, momentum=0.5)
    first = {"parameter": np.ones(1), "centre": np.ones(1)}
    master, worker = evaluate(plan, 2, lambda rank, turn, parameter: np.array([2.0]), first)
    assert (master["centre"][0], worker["parameter"][0], worker["momentum"][0]) == (0.875, -0.125, 3.0)


def test_momentum_of_a_server_by_hand():
    """lr 1/4, mu 1/2, a gradient of 2 each time: v = 2, 3, 7/2; w = 1 - 17/2 / 4 after three."""
    plan = of_one_parameter("async_msgd", 2, momentum=0.5)
    server, worker = evaluate(plan, 3, lambda rank, turn, parameter: np.array([2.0]), {"parameter": np.ones(1)})
    assert (server["parameter"][0], worker["parameter"][0], server["momentum"][0]) == (-1.125, -1.125, 3.5)


def sent_in(seconds):
    return Network({"send": Linear(seconds, 0.0)})


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_without_overlap_a_sweep_is_all_workers_one_after_the_other(workers):
    """12 s of computation between two transfers of 5 s, for each worker; with overlap the transfers remain."""
    times = {}
    for method in ("original_easgd", "original_easgd_no_overlap"):
        plan = planned(method, 1 + workers)
        times[method] = simulate(plan, methods.load(), sent_in(5.0)).iteration_seconds(plan.pace)
    assert times["original_easgd_no_overlap"] == pytest.approx(workers * 22.0)
    assert times["original_easgd"] == pytest.approx(max(12.0, workers * 10.0))


@pytest.mark.parametrize("momentum", [-0.5, 1.0])
@pytest.mark.parametrize("method", ["async_msgd", "async_measgd"])
def test_a_momentum_that_does_not_settle_is_refused(method, momentum):
    with pytest.raises(InputError, match="at least 0 and below 1"):
        planned(method, 2, momentum=momentum)


def test_an_asynchronous_worker_hides_its_exchange():
    plan = planned("async_easgd", 2)
    assert simulate(plan, methods.load(), sent_in(5.0)).iteration_seconds(plan.pace) == pytest.approx(12.0)
    served = planned("async_sgd", 2)
    assert simulate(served, methods.load(), sent_in(5.0)).iteration_seconds(served.pace) == pytest.approx(22.0)

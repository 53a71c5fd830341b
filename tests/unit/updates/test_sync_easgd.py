"""Synchronous elastic averaging: hand-computed steps, plain loops, and what overlaps."""

from __future__ import annotations

import numpy as np
import pytest

import methods
import tiny_plans as tiny
from gradsync import optimizers, updates
from gradsync.check import check
from gradsync.costs import Linear, Network
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.schedules import Message
from methods import ELEMENTS, planned
from tiny_workloads import workload

METHODS = ("sync_easgd1", "sync_easgd2", "sync_easgd3", "knl_easgd")
COMPUTATION = 12.0  # forward and backward of the load, seconds


def ends(plan, turns, gradient=tiny.pull):
    first = {"parameter": tiny.start(ELEMENTS), "centre": tiny.start(ELEMENTS)}
    return evaluate(plan, turns, gradient, first)


@pytest.mark.parametrize("algorithm", ["native", "binary_tree", "chain"])
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("method", METHODS)
def test_values_are_those_of_both_equations(method, workers, algorithm):
    ranks = workers + updates.masters(method)
    working = tuple(range(ranks - workers, ranks))
    centre, parameters = methods.synchronous(working, 6)
    plan = planned(method, ranks, algorithm=algorithm)
    check(plan)
    buffers = ends(plan, 6)
    np.testing.assert_allclose(buffers[0]["centre"], centre, rtol=1e-12, atol=1e-12)
    for rank, expected in zip(working, parameters, strict=True):
        np.testing.assert_allclose(buffers[rank]["parameter"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_two_steps_by_hand(method):
    """One parameter, two workers with gradients 2 and -1; lr 1/4, rho 1, so that a pull goes a quarter of the way.

    Step 1: all are at 1, so that nothing pulls. w = 1 - 2/4 = 1/2 and 1 + 1/4 = 5/4; c stays 1.
    Step 2: w1 = 1/2 - (2 + (1/2 - 1))/4 = 1/8, w2 = 5/4 - (-1 + (5/4 - 1))/4 = 23/16, both with c = 1;
    c = 1 + ((1/2 - 1) + (5/4 - 1))/4 = 15/16, with the parameters before the step.
    """
    load = workload([8], [1.0], dtype="float64")
    masters = updates.masters(method)
    optimizer = optimizers.get("sgd", lr=0.25)
    plan = updates.plan(method, method, load, (Message(0, 0),), 2 + masters, optimizer=optimizer, rho=1.0)

    def gradient(rank, turn, parameter):
        return np.array([2.0 if rank == masters else -1.0])

    for turns, expected in ((1, (1.0, 0.5, 1.25)), (2, (0.9375, 0.125, 1.4375))):
        buffers = evaluate(plan, turns, gradient, {"parameter": np.ones(1), "centre": np.ones(1)})
        parameters = [values["parameter"][0] for values in buffers[masters:]]
        assert (buffers[0]["centre"][0], *parameters) == expected


@pytest.mark.parametrize("method", METHODS)
def test_what_overlaps_is_hidden(method):
    """Broadcast and reduce of 104 bytes take 3 s and 5 s, forward and backward 12 s, updates nothing."""
    network = Network({"broadcast": Linear(3.0, 0.0), "reduce": Linear(5.0, 0.0)})
    plan = planned(method, 3)
    trace = simulate(plan, methods.load(), network)
    overlapped = method in ("sync_easgd3", "knl_easgd")
    assert trace.iteration_seconds(plan.pace) == pytest.approx(COMPUTATION + (0.0 if overlapped else 8.0))
    slow = Network({"broadcast": Linear(30.0, 0.0), "reduce": Linear(50.0, 0.0)})
    seconds = simulate(plan, methods.load(), slow).iteration_seconds(plan.pace)
    assert seconds == pytest.approx(80.0 + (0.0 if overlapped else COMPUTATION))


def test_an_exchange_is_two_messages_of_all_parameters():
    for method in METHODS:
        for role in planned(method, 3).roles:
            sent = planned(method, 3).communications(role)
            assert [(op.kind, op.root) for op in sent] == [("broadcast", 0), ("reduce", 0)]


@pytest.mark.parametrize("rho", [0.0, -1.0, 8.0])
def test_a_pull_that_does_not_settle_is_refused(rho):
    with pytest.raises(InputError, match="does not settle: above 0 and below 1"):
        planned("sync_easgd2", 2, rho=rho)


def test_a_centre_that_overshoots_its_workers_is_refused():
    planned("sync_easgd2", 16)
    with pytest.raises(InputError, match=r"17 x 0.125 x 0.5 of the way .* overshoots: at most 1"):
        planned("sync_easgd2", 17)

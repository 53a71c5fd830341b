"""Every schedule and collective of the registry, executed on real ranks, trains like plain torch on the ranks' shards.

A new file in `schedules/` or `collectives/` is tested here without any edit.
"""

import functools
from itertools import pairwise

import numpy as np
import pytest

import small_model
from gradsync import schedules
from gradsync.check import PlanError, check
from gradsync.collectives import NATIVE
from gradsync.engine.oracle import evaluate
from gradsync.plan import Plan
from gradsync.runtime.compute import oracle_gradient
from rank_programs import COMPOSED_RANKS, swapped, without_message

EQUAL = 1e-9


def by_name(plan, flat):
    return {tensor.name: flat[tensor.start : tensor.stop] for tensor in plan.tensors}


@functools.cache
def oracle(name: str, ranks: int, algorithm: str) -> list[np.ndarray]:
    return evaluated(small_model.plan(name, ranks, algorithm))


def evaluated(plan: Plan) -> list[np.ndarray]:
    model = small_model.build()
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
    ends = evaluate(plan, small_model.TURNS, gradient, {"parameter": small_model.first(plan)})
    return [end["parameter"] for end in ends]


@functools.cache
def reference(ranks: int, whole_batch: bool = False) -> dict[str, np.ndarray]:
    return small_model.reference(ranks, whole_batch=whole_batch)


def farthest(plan: Plan, flat: np.ndarray, wanted: dict[str, np.ndarray]) -> float:
    return max(np.abs(part - wanted[name].reshape(-1)).max() for name, part in by_name(plan, flat).items())


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.deep)])
@pytest.mark.parametrize("algorithm", [NATIVE, "ring"])
@pytest.mark.parametrize("name", schedules.names())
def test_executed_equals_oracle_and_plain_torch(on_ranks, name, algorithm, ranks):
    plan = small_model.plan(name, ranks, algorithm)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    for rank, result in enumerate(on_ranks("all_schedules", ranks)):
        executed = result[name, algorithm]
        assert not isinstance(executed, str), f"rank {rank}: {executed}"
        np.testing.assert_allclose(executed, oracle(name, ranks, algorithm)[rank], rtol=0, atol=EQUAL)
        assert farthest(plan, executed, reference(ranks)) < EQUAL
        assert farthest(plan, executed, reference(ranks, whole_batch=True)) < EQUAL  # no batch normalisation


@pytest.mark.parametrize("name", small_model.composed())
def test_every_collective_executed_equals_oracle_and_plain_torch(on_ranks, name):
    plan = small_model.of_scheme(small_model.composed()[name], COMPOSED_RANKS)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    expected = evaluated(plan)
    for rank, result in enumerate(on_ranks("composed_schemes", COMPOSED_RANKS)):
        executed = result[name]
        assert not isinstance(executed, str), f"rank {rank}: {executed}"
        np.testing.assert_allclose(executed, expected[rank], rtol=0, atol=EQUAL)
        assert farthest(plan, executed, reference(COMPOSED_RANKS)) < EQUAL


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", schedules.names())
def test_executed_on_a_device_that_queues_it_equals_the_oracle(on_ranks, name, ranks):
    for rank, result in enumerate(on_ranks("queued_schedules", ranks)):
        assert not isinstance(result[name], str), f"rank {rank}: {result[name]}"
        np.testing.assert_allclose(result[name], oracle(name, ranks, NATIVE)[rank], rtol=0, atol=EQUAL)


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_are_timed_in_teams_and_between_all(on_ranks, ranks):
    results = on_ranks("queued_schedules", ranks)
    for rank, result in enumerate(results):
        assert set(result["all"]) == {4, 4000}
        assert all(2 <= len(times) <= 30 and min(times) > 0 for times in result["all"].values())
        assert set(result["alone"]) == (set() if rank == ranks - 1 else {4, 4000})
    assert len({str(result["all"]) for result in results}) == 1  # the mean of the ranks, on each


@pytest.mark.parametrize("name", schedules.names())
def test_every_gradient_travels_once_and_in_order(name):
    plan = small_model.plan(name, 2)
    ranges = [(ref.start, ref.stop) for op in plan.communications() for ref in op.writes]
    if name == "priority":  # in an order of its own: tests/unit/schedules/test_priority.py
        ranges.sort()
    assert all(stop == start for (_, stop), (start, _) in pairwise(ranges))
    assert (ranges[0][0], ranges[-1][1]) == (0, plan.tensors[-1].stop)
    assert all(start < stop for start, stop in ranges)


def test_the_model_tells_schedules_apart():
    plans = {tuple(map(tuple, small_model.plan(name, 2).messages())) for name in schedules.names()}
    assert len(plans) >= 4


def test_a_dropped_message_is_refused_and_would_train_wrongly(on_ranks):
    broken = without_message(small_model.plan("wfbp", 2), 2)
    with pytest.raises(PlanError, match=r"missing gradient: '4\.bias' reaches 'update'"):
        check(broken)
    results = [result["dropped message", NATIVE] for result in on_ranks("all_schedules", 2)]
    for executed in results:
        assert np.abs(executed - oracle("wfbp", 2, NATIVE)[0]).max() > 1e-3
        assert farthest(broken, executed, reference(2)) > 1e-3
    assert np.abs(results[0] - results[1]).max() > 1e-3  # the ranks drift apart


def test_swapped_messages_are_caught_before_anything_is_sent(on_ranks):
    whole = small_model.plan("naive", 2)
    check(swapped(whole, 2, 3))  # in itself the plan is in order
    for result in on_ranks("all_schedules", 2):
        message = result["swapped messages", NATIVE]
        assert "rank(s) 1 hold another plan than rank 0" in message
        assert "nothing was sent" in message

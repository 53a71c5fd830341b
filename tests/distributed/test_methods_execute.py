"""Methods of their own on real Gloo ranks: equal to the oracle and to plain loops on the order that was recorded."""

from __future__ import annotations

import numpy as np
import pytest

import methods
import tiny_plans as tiny
from gradsync import updates
from gradsync.engine.oracle import evaluate
from rank_programs import METHOD_TURNS, method_cases
from rank_programs.of_methods import HOGWILD

RANKS = (2, 3)
DEEP_RANKS = 4
BY_RANKS = [*RANKS, pytest.param(DEEP_RANKS, marks=pytest.mark.deep)]
LOCAL = [method for method in updates.methods() if updates.steps(method)]
CASES = [
    pytest.param(ranks, name, id=f"{name}-{ranks}", marks=[pytest.mark.deep] if ranks == DEEP_RANKS else [])
    for ranks in (*RANKS, DEEP_RANKS)
    for name, _, _ in method_cases(ranks)
]
KEPT = ("parameter", "centre", "momentum", "first_moment", "second_moment", "outer_momentum")


def case(ranks, name):
    return next((method, plan) for each, method, plan in method_cases(ranks) if each == name)


def arrivals_of(ended):
    return {
        (span.rank, span.turn, span.operation): span.source
        for end in ended
        for span in end.trace.spans
        if span.verb == "recv_any"
    }


@pytest.mark.parametrize("run", [0, 1])
@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_executed_buffers_equal_the_oracle_and_plain_loops(on_ranks, ranks, name, run):
    ended = [result[name][run] for result in on_ranks("all_methods", ranks)]
    method, plan = case(ranks, name)
    first = tiny.start(methods.ELEMENTS)
    if method in HOGWILD:
        centre, parameters = methods.hogwild(method, ranks, METHOD_TURNS)
        for end, parameter in zip(ended, parameters, strict=True):
            np.testing.assert_allclose(end.buffers["centre"], centre, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(end.buffers["parameter"], parameter, rtol=1e-9, atol=1e-12)
    else:
        arrivals = arrivals_of(ended)
        initial = {"parameter": first, "centre": first}
        expected = evaluate(plan, METHOD_TURNS, tiny.pull, initial, arrivals=arrivals or None)
        for rank in range(ranks):
            for buffer in KEPT:
                if buffer in plan.buffer:
                    np.testing.assert_allclose(
                        ended[rank].buffers[buffer], expected[rank][buffer], rtol=1e-9, atol=1e-12, err_msg=buffer
                    )
        if method in LOCAL:
            _, parameters = methods.local(method, ranks, METHOD_TURNS)
            for end, parameter in zip(ended, parameters, strict=True):
                np.testing.assert_allclose(end.buffers["parameter"], parameter, rtol=1e-9, atol=1e-12)
        order = [arrivals[key] for key in sorted(arrivals)]
        assert sorted(order) == sorted([*range(1, ranks)] * METHOD_TURNS if order else [])
    assert np.abs(ended[-1].buffers["parameter"] - first).max() > 1e-3  # it has moved


@pytest.mark.parametrize("ranks", BY_RANKS)
@pytest.mark.parametrize("method", [*LOCAL, "sync_easgd1", "sync_easgd2", "sync_easgd3", "knl_easgd", "original_easgd"])
def test_what_is_ordered_ends_alike_bit_for_bit(on_ranks, ranks, method):
    """The paper's claim of determinism: two runs of a synchronous method give the same bits."""
    assert not updates.averaged(method)
    for result in on_ranks("all_methods", ranks):
        one, other = (end.buffers for end in result[method])
        for buffer in set(KEPT) & set(one):
            assert (one[buffer] == other[buffer]).all()


@pytest.mark.parametrize("ranks", BY_RANKS)
def test_torch_averages_models_to_the_same_parameters(on_ranks, ranks):
    """PostLocalSGDOptimizer with a PeriodicModelAverager is an implementation that owes ours nothing."""
    for ours, theirs in zip(on_ranks("all_methods", ranks), on_ranks("averaged_by_torch", ranks), strict=True):
        np.testing.assert_allclose(ours["local_sgd"][0].buffers["parameter"], theirs, rtol=1e-9, atol=1e-12)

"""Sparse messages of every kind, executed on real ranks: as the oracle, and as dense ones if all elements are sent.

A new file in `sparse/` or `compressors/` is tested here without any edit.
"""

import functools

import numpy as np
import pytest

import small_model
from gradsync import sparse
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.plan import Plan
from gradsync.runtime.compute import oracle_gradient
from rank_programs import sparse_cases
from rank_programs.of_sparse import QUEUED, TWO_LEVELS

EQUAL = 1e-9
DEEP_RANKS = 4
CASES = [
    pytest.param(ranks, name, marks=[pytest.mark.deep] if ranks == DEEP_RANKS else [])
    for ranks in (2, DEEP_RANKS)
    for name in sparse_cases(ranks)
]


def plan(name: str, ranks: int) -> Plan:
    return small_model.of_scheme(sparse_cases(ranks)[name], ranks)


@functools.cache
def oracle(name: str, ranks: int) -> list[np.ndarray]:
    model, planned = small_model.build(), plan(name, ranks)
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), planned, small_model.sample)
    ends = evaluate(planned, small_model.TURNS, gradient, {"parameter": small_model.first(planned)})
    return [end["parameter"] for end in ends]


@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_executed_equals_the_oracle(on_ranks, ranks, name):
    held_against_the_oracle(ranks, name, on_ranks("sparse_schemes", ranks))


@pytest.mark.parametrize("name", TWO_LEVELS)
def test_nodes_of_several_ranks_equal_the_oracle(on_ranks, name):
    held_against_the_oracle(4, name, on_ranks("two_levels_of_sparse", 4))


def held_against_the_oracle(ranks, name, results):
    check(plan(name, ranks))
    for rank, result in enumerate(results):
        for device in ("", "queued ") if name in QUEUED else ("",):
            executed = result[device + name]
            assert not isinstance(executed, str), f"rank {rank}: {executed}"
            np.testing.assert_allclose(executed, oracle(name, ranks)[rank], rtol=0, atol=EQUAL)
            np.testing.assert_allclose(executed, oracle(name, ranks)[0], rtol=0, atol=EQUAL)  # no rank drifts away


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.deep)])
@pytest.mark.parametrize("collective", sparse.names())
def test_all_elements_train_as_plain_torch(on_ranks, collective, ranks):
    reference, name = small_model.reference(ranks), f"{collective} all"
    planned = plan(name, ranks)
    for result in on_ranks("sparse_schemes", ranks):
        for tensor in planned.tensors:
            wanted = reference[tensor.name].reshape(-1)
            np.testing.assert_allclose(result[name][tensor.start : tensor.stop], wanted, rtol=0, atol=EQUAL)


def test_the_cases_are_told_apart():
    """Compressors, collectives and error feedback lead to other parameters."""
    ends = {name: oracle(name, 4)[0] for name in sparse_cases(4)}
    for name, end in ends.items():
        if name.endswith(" without feedback"):
            assert np.abs(end - ends[name.removesuffix(" without feedback")]).max() > 1e-3
    assert np.abs(ends["hitopk wfbp"] - ends["allgather_sparse wfbp"]).max() > 1e-3
    assert np.abs(ends["hitopk wfbp"] - ends["hitopk all"]).max() > 1e-3

"""Matrices that travel as factors, executed on real ranks: as the oracle, and as torch's own PowerSGD hook trains."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import small_model
from gradsync.check import check
from gradsync.compressors import powersgd
from gradsync.engine.oracle import evaluate
from gradsync.runtime.compute import oracle_gradient
from rank_programs.of_low_rank import CASES, QUEUED, RANKS_OF_FACTORS, low_rank_plan, of_rank_of_factors

EQUAL = 1e-9


@functools.cache
def oracle(name: str, ranks: int) -> list[dict[str, np.ndarray]]:
    model, planned = small_model.build(), low_rank_plan(name, ranks)
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), planned, small_model.sample)
    return evaluate(planned, small_model.TURNS, gradient, {"parameter": small_model.first(planned)})


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", CASES)
def test_executed_equals_the_oracle(on_ranks, ranks, name):
    check(low_rank_plan(name, ranks))
    first: dict[str, np.ndarray] = {}
    for rank, result in enumerate(on_ranks("low_rank_schemes", ranks)):
        for device in ("", "queued ") if name in QUEUED else ("",):
            executed = result[device + name]
            assert not isinstance(executed, str), f"rank {rank}: {executed}"
            for buffer, values in executed.items():
                np.testing.assert_allclose(values, oracle(name, ranks)[rank][buffer], rtol=0, atol=EQUAL)
        first = first or result[name]
        for buffer in result[name].keys() - {"residual"}:
            np.testing.assert_array_equal(result[name][buffer], first[buffer])  # bit for bit: no rank drifts away


@pytest.mark.parametrize("ranks", [2, 4])
def test_factors_of_full_rank_train_as_plain_torch(on_ranks, ranks):
    reference, planned = small_model.reference(ranks), low_rank_plan("all of it", ranks)
    for result in on_ranks("low_rank_schemes", ranks):
        for tensor in planned.tensors:
            wanted = reference[tensor.name].reshape(-1)
            values = result["all of it"]["parameter"][tensor.start : tensor.stop]
            np.testing.assert_allclose(values, wanted, rtol=0, atol=EQUAL)


@pytest.mark.parametrize("of", RANKS_OF_FACTORS)
@pytest.mark.parametrize("ranks", [2, 4])
def test_it_trains_as_torchs_hook(on_ranks, ranks, of):
    """From the same Q: parameters, and the errors of matrices that each rank feeds back."""
    planned, results = of_rank_of_factors(of, ranks), on_ranks("low_rank_schemes", ranks)
    factored = {layer.name for layer in small_model.load().layers if powersgd.matrix(layer.shape or (), of)}
    assert 0 < len(factored) < len(planned.tensors)
    for tensor in planned.tensors:
        part, fed_back = slice(tensor.start, tensor.stop), f"residual of {tensor.name}"
        for result in results:
            ours, theirs = result[f"hooked {of}"], result[f"torch {of}"]
            np.testing.assert_allclose(ours["parameter"][part], theirs[tensor.name], rtol=0, atol=EQUAL)
            wanted = theirs[fed_back] if tensor.name in factored else 0.0
            np.testing.assert_allclose(ours["residual"][part], wanted, rtol=0, atol=EQUAL)
        if tensor.name not in factored:  # the hook keeps how far a rank is from the mean, which changes no sum
            assert np.abs(sum(result[f"torch {of}"][fed_back] for result in results)).max() < EQUAL
    kept = [result[f"hooked {of}"]["residual"] for result in results]
    assert np.abs(kept[0]).max() > 1e-3
    assert np.abs(kept[0] - kept[1]).max() > 1e-3  # each rank its own


def test_the_cases_are_told_apart():
    """The rank and error feedback lead to other parameters, how messages are merged to the same."""
    ends = {name: oracle(name, 2)[0]["parameter"] for name in CASES}
    for other in ("without feedback", "merged", "all of it"):
        assert np.abs(ends["wfbp"] - ends[other]).max() > 1e-3, other
    for same in ("single", "lanes", "priority", "rings"):
        np.testing.assert_allclose(ends[same], ends["wfbp"], rtol=0, atol=EQUAL)

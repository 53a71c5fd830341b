"""Every optimizer, by every update and peer, on real ranks, broken off and resumed: as torch's, as the oracle.

A new file in `optimizers/` or `updates/` is tested here without any edit.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import small_model
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.runtime.compute import oracle_gradient
from gradsync.runtime.peers import KINDS
from rank_programs import DEALT, OPTIMIZED, together

RANKS = 2
EQUAL = 1e-9


@functools.cache
def reference(case: str) -> np.ndarray:
    parameters = small_model.reference(RANKS, optimizer=OPTIMIZED[case].optimizer, rate=OPTIMIZED[case].rate)
    return np.concatenate([parameters[tensor.name].reshape(-1) for tensor in small_model.plan("wfbp", RANKS).tensors])


@pytest.mark.parametrize(
    ("case", "how"), [(case, how) for case in OPTIMIZED for how in (*together(case), "queued", *KINDS)]
)
def test_executed_and_resumed_equals_plain_torch(on_ranks, case, how):
    for result in on_ranks("optimized", RANKS):
        np.testing.assert_allclose(result[case, how], reference(case), rtol=0, atol=EQUAL)


@pytest.mark.parametrize(("case", "update"), [(case, update) for case in OPTIMIZED for update in together(case)])
def test_executed_equals_the_oracle(on_ranks, case, update):
    optimizer, rate = OPTIMIZED[case]
    plan = small_model.plan("mgwfbp", RANKS, update=update, optimizer=optimizer)
    check(plan)
    model = small_model.build()
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
    ends = evaluate(plan, small_model.TURNS, gradient, {"parameter": small_model.first(plan)}, rate=rate)
    for result, end in zip(on_ranks("optimized", RANKS), ends, strict=True):
        np.testing.assert_allclose(result[case, update], end["parameter"], rtol=0, atol=EQUAL)


@pytest.mark.parametrize("case", DEALT)
def test_norms_that_are_dealt_to_ranks_change_no_bit(on_ranks, case):
    plan = small_model.plan("mgwfbp", RANKS, optimizer=OPTIMIZED[case].optimizer, pto=True)
    check(plan)
    for result in on_ranks("optimized", RANKS):
        np.testing.assert_array_equal(result[case, "pto"], result[case, "ssgd"])
        np.testing.assert_array_equal(result[case, "pto queued"], result[case, "queued"])
        np.testing.assert_allclose(result[case, "pto"], reference(case), rtol=0, atol=EQUAL)


def test_decays_and_schedules_are_told_apart():
    """Adam and AdamW without decay are the same."""
    ends = {case: reference(case) for case in OPTIMIZED}
    np.testing.assert_allclose(ends.pop("adamw"), ends["adam"], rtol=0, atol=EQUAL)
    for case, one in ends.items():
        for other in ends.keys() - {case}:
            assert np.abs(one - ends[other]).max() > 1e-3

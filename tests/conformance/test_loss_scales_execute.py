"""A loss scale by every update on real ranks: as torch's GradScaler, as the oracle; all skip what overflows."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import small_model
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.plan import Plan
from gradsync.runtime.compute import FIRST_LOSS_SCALE, oracle_gradient
from rank_programs import SCALED, of_loss_scales, scaled_plan

RANKS = 2
EQUAL = {"": 1e-9, "float32": 1e-5}  # by what gradients travel in
EVERY = [(case, update) for case in SCALED for update in SCALED[case].updates]


@functools.cache
def reference(case: str) -> tuple[dict[str, np.ndarray], tuple[float, int]]:
    return of_loss_scales.reference(case, RANKS)


def laid_out(plan: Plan, parameters: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([parameters[tensor.name].reshape(-1) for tensor in plan.tensors])


@pytest.mark.parametrize(("case", "update"), EVERY)
def test_executed_equals_plain_torch_with_its_grad_scaler(on_ranks, case, update):
    parameters, (scale, good) = reference(case)
    plan = scaled_plan(case, update, RANKS)
    check(plan)
    for result in on_ranks("loss_scales", RANKS):
        *_, ended, _ = result[case, update]
        enough = EQUAL[SCALED[case].wire]
        np.testing.assert_allclose(ended["parameter"], laid_out(plan, parameters), rtol=0, atol=enough)
        assert ended["scaler"].tolist() == [scale, good, 1]


@pytest.mark.parametrize(("case", "update"), EVERY)
def test_a_step_that_overflows_on_one_rank_is_skipped_by_all_and_training_goes_on(on_ranks, case, update):
    for result in on_ranks("loss_scales", RANKS):
        before, after, ended, _ = result[case, update]
        assert before.keys() > {"parameter", "scaler"}
        for name in before.keys() - {"scaler"}:
            np.testing.assert_array_equal(after[name], before[name])
            assert (ended[name] != after[name]).all()
        assert after["scaler"].tolist() == [before["scaler"][0] / 2, 0, 1]
        assert before["scaler"].tolist() == [2 * FIRST_LOSS_SCALE / SCALED[case].passes, 1, 0]


@pytest.mark.parametrize(("case", "update"), EVERY)
def test_what_is_resumed_is_the_same_to_the_bit(on_ranks, case, update):
    for result in on_ranks("loss_scales", RANKS):
        *_, ended, resumed = result[case, update]
        for name, value in ended.items():
            np.testing.assert_array_equal(resumed[name], value)


@pytest.mark.parametrize(("case", "update"), EVERY)
def test_executed_equals_the_oracle(on_ranks, case, update):
    plan = scaled_plan(case, update, RANKS)
    model, passes = small_model.build(), SCALED[case].passes
    plain = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
    results = on_ranks("loss_scales", RANKS)
    scale = FIRST_LOSS_SCALE / passes

    def gradient(rank: int, number: int, parameter: np.ndarray) -> np.ndarray:
        turn = number // passes
        spoilt = (rank, number) == (of_loss_scales.SPOILT_RANK, of_loss_scales.SPOILT * passes)
        grown = 2.0 ** (turn // of_loss_scales.GROWTH_INTERVAL) if turn <= of_loss_scales.SPOILT else 1.0
        later = turn - of_loss_scales.SPOILT - 1
        grown = 2.0 ** (later // of_loss_scales.GROWTH_INTERVAL) if later >= 0 else grown
        return plain(rank, number, parameter) * scale * grown * (np.inf if spoilt else 1.0)

    first = {"parameter": small_model.first(plan), "scaler": np.array([scale, 0.0, 0.0])}
    ends = evaluate(plan, of_loss_scales.SCALED_TURNS, gradient, first)
    for result, end in zip(results, ends, strict=True):
        *_, ended, _ = result[case, update]
        for name, value in ended.items():
            np.testing.assert_allclose(value, end[name], rtol=0, atol=EQUAL[SCALED[case].wire])


def test_the_cases_are_told_apart():
    ends = [np.concatenate([value.reshape(-1) for value in reference(case)[0].values()]) for case in SCALED]
    for i, one in enumerate(ends[:-1]):  # the last is the first, with fewer digits on the way
        for other in ends[:i]:
            assert np.abs(one - other).max() > 1e-3

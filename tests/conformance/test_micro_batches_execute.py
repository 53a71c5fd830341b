"""Steps of several micro-batches, clipped and not, on real ranks: as the oracle, as plain torch, as peers."""

import functools

import numpy as np
import pytest

import real_models as real
import small_model
from gradsync.engine.oracle import evaluate
from gradsync.runtime.compute import oracle_gradient
from gradsync.runtime.peers import KINDS
from rank_programs import MICRO_BATCHES

RANKS = 2
EQUAL = 1e-9
HOW = ("wfbp", "mgwfbp", "single", "ring", "queued", *KINDS)


@functools.cache
def reference(number: int, whole_batch: bool) -> np.ndarray:
    case = MICRO_BATCHES[number]
    parameters = small_model.reference(
        RANKS, whole_batch=whole_batch, accumulate=case["accumulate"], clip=case["clip_norm"]
    )
    return np.concatenate([parameters[tensor.name].reshape(-1) for tensor in small_model.plan("wfbp", RANKS).tensors])


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(MICRO_BATCHES)))
@pytest.mark.parametrize("how", HOW)
def test_executed_equals_plain_torch_and_one_big_batch(on_ranks, how, number):
    for result in on_ranks("micro_batches", RANKS):
        for whole_batch in (False, True):  # no batch normalisation
            np.testing.assert_allclose(result[how, number], reference(number, whole_batch), rtol=0, atol=EQUAL)


@pytest.mark.parametrize("number", range(len(MICRO_BATCHES)))
def test_executed_equals_the_oracle(on_ranks, number):
    plan = small_model.plan("mgwfbp", RANKS, **MICRO_BATCHES[number])
    model = small_model.build()
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
    ends = evaluate(plan, small_model.TURNS, gradient, {"parameter": small_model.first(plan)})
    for rank, result in enumerate(on_ranks("micro_batches", RANKS)):
        np.testing.assert_allclose(result["mgwfbp", number], ends[rank]["parameter"], rtol=0, atol=EQUAL)
        for kind in KINDS:
            assert len(result["losses of " + kind, number]) == small_model.TURNS


def test_the_cases_are_told_apart():
    ends = [reference(number, False) for number in range(len(MICRO_BATCHES))]
    for i, one in enumerate(ends):
        for other in ends[:i]:
            assert np.abs(one - other).max() > 1e-3


def test_batch_normalisation_follows_rank_0_once_a_step_as_with_ddp(on_ranks):
    first, second = on_ranks("micro_batches", RANKS)
    for key, value in first["resnet8", 0].items():
        np.testing.assert_array_equal(second["resnet8", 0][key], value)
        np.testing.assert_allclose(first["resnet8 of ddp", 0][key], value, rtol=0, atol=EQUAL)
    assert first["resnet8 of ddp", 1] == real.TURNS

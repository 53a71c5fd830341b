"""What becomes of messages whose matrices travel as factors, what a step of them keeps, and what is refused."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_plans as tiny
from gradsync.check import check
from gradsync.compressors.powersgd import Matrix
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError, RunError
from gradsync.plan import Plan
from gradsync.transforms.loss_scaling import scale_loss
from gradsync.transforms.low_rank import LowRank, factor
from low_rank_plans import SHAPES, low_rank

ONE = Matrix(2, 3, 1)
SIZES = (5, 6, 1)
OF_SIZES = LowRank("powersgd", 1, (None, ONE, None))


def names(plan: Plan) -> list[str]:
    return [op.name for op in plan.roles[0].flat if op.verb in ("local", "collective")]


def pulled(plan: Plan, turns: int, gradients: dict[tuple[int, int], np.ndarray]) -> list[dict[str, np.ndarray]]:
    """Buffers after so many turns with these gradients, of (rank, turn)."""
    return evaluate(plan, turns, lambda rank, turn, _: gradients[rank, turn], {})


def drawn(plan: Plan, turns: int, seed: int = 0) -> dict[tuple[int, int], np.ndarray]:
    rng = np.random.default_rng(seed)
    return {(rank, turn): rng.normal(size=plan.elements) for rank in range(plan.ranks) for turn in range(turns)}


def test_a_message_becomes_two_sums_with_kernels_around_them():
    plan = low_rank(2)
    assert names(plan) == [
        *("left0", "pack0:layer4", "pack0:layer2", "pack0:layer1", "sum_left0", "right0", "sum_right0"),
        *("unpack0:layer4", "unpack0:layer2", "unpack0:layer1", "decode0", "update"),
    ]
    sums = {op.name: op.writes for op in plan.communications()}
    assert sums == {"sum_left0": (("left", 0, 4 + 3 + 4 + 3 + 4, ()),), "sum_right0": (("right", 0, 5 + 8, ()),)}
    assert {buffer.name: buffer.role for buffer in plan.buffers}.items() >= {
        ("left", "scratch"),
        ("right", "state"),
        ("residual", "residual"),
    }


def test_a_message_without_a_matrix_travels_as_it_is():
    assert names(low_rank(2, "wfbp")) == [
        *("left0", "sum_left0", "right0", "sum_right0", "decode0", "message1"),
        *("left2", "sum_left2", "right2", "sum_right2", "decode2", "message3", "message4", "update"),
    ]
    every = low_rank(2, "wfbp", rank=9)
    assert names(every) == [*(f"message{number}" for number in range(5)), "update"]
    assert "right" not in every.buffer


def test_factors_lie_in_the_same_place_however_messages_are_merged():
    merged, layers = low_rank(2), low_rank(2, "wfbp")
    assert merged.buffer["right"] == layers.buffer["right"]
    rights = [
        sorted(ref for op in plan.roles[0].flat for ref in op.writes if ref.buffer == "right" and "sum" not in op.name)
        for plan in (merged, layers)
    ]
    assert rights[0] == rights[1]


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 3), st.sampled_from(["single", "wfbp"]), st.integers(0, 99))
def test_what_is_sent_and_what_is_kept_is_the_gradient(ranks: int, rank: int, schedule: str, seed: int) -> None:
    """Summed over ranks and turns: the sum that all take, and what each keeps."""
    turns = 3
    plan = low_rank(ranks, schedule, rank)
    gradients = drawn(plan, turns, seed)
    sent = np.zeros(plan.elements)
    for number in range(1, turns + 1):
        ends = pulled(plan, number, gradients)
        sent += ends[0]["gradient"]
        for end in ends:
            assert (end["gradient"] == ends[0]["gradient"]).all()
    kept = sum(end["residual"] for end in ends) if "residual" in ends[0] else 0.0
    np.testing.assert_allclose(sent + kept, sum(gradients.values()), atol=1e-12)


def test_a_matrix_of_low_rank_is_sent_whole_once_its_factor_is_known():
    """Rank 1 of each matrix, the same on both ranks: the first P has its columns already."""
    plan = low_rank(2, "wfbp", 1)
    matrices = [np.outer(range(1, rows + 1), np.ones(prod(rest))) for rows, *rest in SHAPES]
    gradient = np.concatenate([matrix.ravel() for matrix in matrices])
    ends = pulled(plan, 1, {(rank, 0): gradient for rank in range(2)})
    np.testing.assert_allclose(ends[0]["gradient"], 2 * gradient, atol=1e-12)
    np.testing.assert_allclose(ends[0]["residual"], 0, atol=1e-12)


def test_error_feedback_sends_in_the_end_what_one_message_lacks():
    """Of a constant gradient what is kept stays small beside what was sent; without feedback a part is never sent."""
    turns = 100
    kept, lost = low_rank(2), low_rank(2, feedback=False)
    gradient = drawn(kept, 1)[0, 0]
    every = {(rank, turn): gradient for rank in range(2) for turn in range(turns)}
    ends = pulled(kept, turns, every)
    assert 0 < np.abs(ends[0]["residual"]).max() / turns < 0.1
    assert np.abs(pulled(lost, turns, every)[0]["gradient"] / 2 - gradient).max() > 0.5


def test_gradients_of_zeros_leave_no_nan_and_no_factor_of_zeros():
    plan = low_rank(2)
    gradients = {(rank, turn): np.zeros(plan.elements) for rank in range(2) for turn in range(3)}
    for rank in range(2):
        gradients[rank, 2] = np.arange(1.0, plan.elements + 1)
    for turns in (1, 2):
        for end in pulled(plan, turns, gradients):
            assert not end["gradient"].any()
            assert not end["residual"].any()
    last = pulled(plan, 3, gradients)[0]
    assert all(np.isfinite(values).all() for values in last.values())
    assert np.abs(last["gradient"]).max() > 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_gradient_without_numbers_ends_the_run_by_name(value):
    plan = low_rank(2)
    gradients = drawn(plan, 1)
    gradients[1, 0][3] = value
    with pytest.raises(RunError, match="compressor 'powersgd': a gradient has elements that are "):
        pulled(plan, 1, gradients)


REFUSED = {
    "a part of a tensor": (lambda: low_rank(2, "priority", options={"partition_bytes": 40}), "has a part of a tensor"),
    "axes": (lambda: factor(tiny.summed_on_axes(2, 2), OF_SIZES), "needs a plan without axes"),
    "no sums": (lambda: factor(tiny.easgd_round_robin(2, SIZES), OF_SIZES), "it has no such message"),
    "other shapes": (
        lambda: factor(tiny.synchronous(2, (5, 7, 1)), OF_SIZES),
        "its tensors are not those whose",
    ),
    "fewer shapes": (lambda: factor(tiny.synchronous(2, (5, 6)), OF_SIZES), "its tensors are not those whose"),
    "twice": (lambda: factor(factor(tiny.synchronous(2, SIZES), OF_SIZES), OF_SIZES), "'layer2' is in no message"),
    "a loss scale": (lambda: scale_loss(low_rank(2, feedback=False)), "encodes them by kernel 'powersgd_left'"),
    "a loss scale before": (lambda: factor(scale_loss(tiny.synchronous(2, SIZES)), OF_SIZES), "without a loss scale"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_by_name(what):
    make, message = REFUSED[what]
    with pytest.raises(InputError, match=message):
        make()


def test_a_plan_by_hand_is_factored():
    plan = factor(tiny.synchronous(2, SIZES), OF_SIZES)
    check(plan)
    assert plan.messages() == [["layer3"], ["layer2"], ["layer1"]]
    assert names(plan) == ["message0", "left1", "sum_left1", "right1", "sum_right1", "decode1", "message2", "update"]

"""`gradsync.attach(.., "auto")` on two ranks: what DDP trains in the same loop, whatever is tried and chosen in it."""

from __future__ import annotations

import numpy as np
import pytest

from rank_programs import AUTO_CASES, AUTO_QUEUED

RANKS = 2
EVENTS = ["started", "measured", "predicted", "compared", "chosen"]


@pytest.fixture
def told(on_ranks):
    return on_ranks("attached_auto", RANKS)


def events(history):
    return [each["event"] for each in history]


@pytest.mark.parametrize("case", [*AUTO_CASES, AUTO_QUEUED])
def test_it_trains_what_ddp_trains_while_two_plans_take_turns(told, case):
    """To the bit: sums over two ranks are the same in either order."""
    for rank, result in enumerate(told):
        chosen = result[case, "auto"]
        assert events(chosen["history"]) == EVENTS
        assert not chosen["watched"]
        for name, value in result[case, "ddp"].items():
            if "running" in name and rank:
                continue  # DDP leaves every rank its own after the last forward
            np.testing.assert_array_equal(chosen["state"][name], value, err_msg=name)


@pytest.mark.parametrize("case", [*AUTO_CASES, AUTO_QUEUED])
def test_ranks_end_with_the_same_model(told, case):
    first, second = (result[case, "auto"]["state"] for result in told)
    for name, value in first.items():
        np.testing.assert_array_equal(value, second[name], err_msg=name)


@pytest.mark.parametrize("key", [("float64", "auto"), ("slow", "wfbp"), "default"])
def test_ranks_agree_on_all_that_is_told(told, key):
    first, second = (result[key] for result in told)
    assert first["history"] == second["history"]
    assert first["whole"] == second["whole"]


def test_the_default_predicts_all_of_its_schemes(told):
    history = told[0]["default"]["history"]
    (predicted,) = (each for each in history if each["event"] == "predicted")
    assert predicted["iteration_seconds"].keys() == {"optimal", "mgwfbp", "wfbp", "single", "fixed_buckets"}
    assert predicted["iteration_seconds"][predicted["best"]] == min(predicted["iteration_seconds"].values())
    (measured,) = (each for each in history if each["event"] == "measured")
    assert measured["forward_seconds"] > 0
    assert measured["backward_seconds"] > 0
    assert "measured between the ranks" in measured["all_reduce"]
    assert history[-1]["event"] == "chosen"


@pytest.mark.parametrize(("slow", "kept"), [("wfbp", "fixed_buckets"), ("fixed_buckets", "wfbp")])
def test_the_faster_one_is_kept_though_one_rank_alone_is_slow(told, slow, kept):
    for result in told:
        chosen = result["slow", slow]
        *_, compared, last = chosen["history"]
        assert (compared["ratio"] > 1) == (slow == "wfbp")
        assert None not in (compared["low"], compared["high"])  # of six pairs
        assert ("not told apart" in last["why"]) == (compared["low"] <= 1 <= compared["high"])
        assert (last["plan"], chosen["plan"]) == (kept, kept)
        np.testing.assert_array_equal(
            chosen["state"]["head.weight"], result["float64", "ddp"]["head.weight"], err_msg="a slow rank"
        )


def test_without_trials_the_prediction_decides(told):
    """The statistics of the model are those of the plan that is chosen, on all ranks."""
    first, second = (result["predicted alone"] for result in told)
    assert events(first["history"]) == ["started", "measured", "predicted", "chosen"]
    assert first["plan"] == "wfbp"
    for name, value in told[0]["statistics", "ddp"].items():
        np.testing.assert_array_equal(first["state"][name], value, err_msg=name)
        np.testing.assert_array_equal(first["state"][name], second["state"][name], err_msg=name)


def test_a_training_that_is_shorter_than_the_warm_up_says_so(told):
    chosen = told[1]["too short"]
    assert events(chosen["history"]) == ["started", "unfinished"]
    assert "after 2 iteration(s)" in chosen["history"][-1]["why"]
    assert chosen["plan"] == "fixed_buckets"


def test_training_goes_on_with_the_starting_plan_if_none_can_be_made(told):
    for result in told:
        chosen = result["costs that make no sense"]
        assert events(chosen["history"]) == ["started", "chosen"]
        assert "nowhere.csv" in chosen["history"][-1]["why"]
        np.testing.assert_array_equal(chosen["state"]["head.weight"], result["float64", "ddp"]["head.weight"])


def test_training_goes_on_from_a_checkpoint_of_the_trial(told):
    for rank, result in enumerate(told):
        disturbed = result["disturbed"]
        assert disturbed["trying"]
        assert disturbed["chosen"] == "chosen"
        for name, value in result[AUTO_QUEUED, "ddp"].items():
            if "running" not in name and "num_batches" not in name:
                np.testing.assert_array_equal(disturbed["state"][name], value, err_msg=f"rank {rank}, {name}")


def test_a_model_that_differs_between_ranks_is_refused(told):
    for result in told:
        assert "'weight' [3, 3] float32 on rank 0, 'weight' [4, 3] float32 on rank 1" in result["unlike"]

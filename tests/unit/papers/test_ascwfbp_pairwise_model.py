"""The ASC-WFBP paper's own model of contention: messages by hand, random nets, the drawn examples of Fig. 1 to 3."""

from __future__ import annotations

import pytest

from gradsync import schedules
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.papers.ascwfbp import examples, iterations, losses, pairwise_model
from gradsync.schedules import Message, ascwfbp
from made_up_ascwfbp import net, table

LINE = Linear(2.0, 0.5, "by hand")


def test_messages_of_the_own_model_are_those_by_hand():
    """Two of 10 bytes, the second there when 3 of 7 seconds have passed: 4/7 of the first is left."""
    workload = net((10, 0.0), (10, 3.0))
    serial = pairwise_model.timed(workload, [Message(0, 0), Message(1, 1)], LINE, 1.5)
    assert serial.ends == (7.0, 14.0)
    together = pairwise_model.timed(workload, [Message(0, 0, "a"), Message(1, 1, "b")], LINE, 1.5)
    late = 0.5 * 0.5 * 10 * 4 / 7
    assert together.starts == (0.0, 3.0)
    assert together.ends == pytest.approx((7 + late, 10 + late))
    # a third on a third lane is more than pairs
    three = [Message(i, i, f"lane {i}") for i in range(3)]
    with pytest.raises(InputError, match="two messages at once, not three"):
        pairwise_model.timed(net((10, 0.0), (10, 0.0), (10, 0.0)), three, LINE, 1.5)
    with pytest.raises(InputError, match="knows no split messages"):
        pairwise_model.timed(workload, [Message(0, 1, part=(0, 2)), Message(0, 1, part=(1, 2))], LINE, 1.5)


def test_a_message_that_waits_for_another_lane_starts_once_that_is_through():
    workload = net((10, 0.0), (4, 1.0), (2, 0.0))
    messages = [Message(0, 0, "a"), Message(1, 1, "b"), Message(2, 2, "b", after=(0,))]
    times = pairwise_model.timed(workload, messages, LINE, 2.0)
    assert times.starts[2] == pytest.approx(max(times.ends[0], times.ends[1]))


@pytest.mark.parametrize("layers", [3, 12, 60])
def test_the_own_model_of_messages_is_that_of_the_planner(layers):
    for workload in losses.nets(layers, 12):
        for rule in ascwfbp.RULES:
            kinds = ascwfbp.kinds(workload, LINE, 1.5, rule)
            planned = max(message.end for message in ascwfbp.timed(workload, LINE, kinds, 1.5))
            messages = schedules.messages("ascwfbp", workload, LINE, {"gamma": 1.5, "rule": rule})
            assert pairwise_model.timed(workload, messages, LINE, 1.5).iteration_seconds == pytest.approx(planned)


def test_of_one_lane_the_own_model_is_the_serial_sum():
    workload = losses.nets(20, 1)[0]
    messages = schedules.messages("wfbp", workload, LINE, {})
    seconds = pairwise_model.timed(workload, messages, LINE, 1.5).iteration_seconds
    assert seconds == pytest.approx(iterations.serial_seconds(workload, LINE))


def test_nothing_beats_the_best_choice_of_types(asc_tables):
    for workload in losses.nets(losses.FEW, 10):
        best = losses.best_seconds(workload, losses.LINE, 1.5)
        for name in ("wfbp", "mgwfbp", "ascwfbp"):
            options = {"gamma": 1.5} if name == "ascwfbp" else {}
            messages = schedules.messages(name, workload, losses.LINE, options)
            seconds = pairwise_model.timed(workload, messages, losses.LINE, 1.5).iteration_seconds
            assert best <= seconds * (1 + 1e-9)
    frame = table(asc_tables, "own_model")
    random = frame[frame.what == "random nets"].set_index(["layers", "scheme", "against"])
    assert (random.losing == (random.losing_share * random.instances).round()).all()
    assert random.losing[5, "ascwfbp", "best"] > 0
    assert random.losing[5, "ascwfbp", "wfbp"] == random.losing[20, "ascwfbp", "wfbp"] == 0


def test_completion_times_of_two_layers_are_the_closed_forms_and_theorem_1_is_not_the_best(asc_tables):
    frame = table(asc_tables, "timelines").set_index(["figure", "schedule"])
    for figure in ("fig3", "counterexample"):
        for name in examples.THREE:
            row = frame.loc[figure, name]
            assert row.own_seconds == pytest.approx(row.formula_seconds)
    # ASC-E17, worked out by hand
    by_hand = {"wfbp": 22.0, "merged": 21.5, "simultaneous": 17.6, "ascwfbp": 21.5}
    assert frame.own_seconds["counterexample"].to_dict() == pytest.approx(by_hand)
    penalties = frame.penalty_seconds["fig2"]
    assert (penalties["full"], penalties["half"]) == pytest.approx((2.0, 1.0))  # 0.5 b m, and half of it

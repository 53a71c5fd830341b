"""Curves of a training: seconds and iterations until an error is reached, seed by seed."""

from __future__ import annotations

from dataclasses import asdict

from gradsync.runtime.elastic_results import Course

SEGMENT = 4


def course(*seeds):
    """Each seed: the test accuracies after its segments, of two seconds each."""
    made = Course()
    for seed, accuracies in enumerate(seeds):
        made.begin(seed)
        made.begin_seed(1.0, 2.0)
        for accuracy in accuracies:
            made.turns += SEGMENT
            made.segment(seed, SEGMENT, 2.0, 0.5, accuracy)
    return made


def test_an_error_is_reached_when_it_is_no_larger_for_the_first_time():
    made = course([0.5, 0.9, 0.8, 0.95], [0.5, 0.6, 0.89])
    assert made.reached(0.1) == {0: (2 * SEGMENT, 4.0)}
    assert made.reached(0.5) == {0: (SEGMENT, 2.0), 1: (SEGMENT, 2.0)}
    assert made.reached(0.01) == {}
    assert made.ends() == {0: (8.0, 0.95), 1: (6.0, 0.89)}


def test_all_targets_of_a_seed_are_reached_or_not():
    made = course([0.5, 0.95, 0.9], [0.5, 0.6])
    assert made.reached_all(0, (0.5, 0.05))
    assert not made.reached_all(0, (0.5, 0.01))
    assert not made.reached_all(1, (0.5, 0.05))
    assert not made.reached_all(2, (0.5,))  # has not begun


def test_the_curve_has_a_row_for_each_segment():
    lines = course([0.5, 0.75]).metrics().splitlines()
    assert lines[0] == "seed,step,seconds,iteration_seconds,loss,accuracy,error"
    assert lines[1:] == ["0,4,2.0,0.5,0.5,0.5,0.5", "0,8,4.0,0.5,0.5,0.75,0.25"]


def test_without_test_samples_cells_are_empty():
    assert course([None]).metrics().splitlines()[1] == "0,4,2.0,0.5,0.5,,"
    assert course([None]).reached(0.5) == {}


def test_trainings_of_one_seed_are_told_apart_by_what_comes_out():
    made = course([0.5], [0.25])
    made.finals = {"0": "aa", "1": "bb"}
    assert made.distinct() == {"aa"}
    made.again = ["aa", "cc", "cc"]  # of the first seed alone
    assert made.distinct() == {"aa", "cc"}


def test_parts_are_those_of_their_seed():
    made = course([0.5], [0.25])
    for seed, seconds in ((0, 1.0), (0, 2.0), (1, 4.0)):
        made.add_parts(seed, {"for_backward": seconds})
    assert made.parts == {"0": {"for_backward": 3.0}, "1": {"for_backward": 4.0}}
    assert made.last_turns() == {0: SEGMENT, 1: SEGMENT}


def test_a_checkpoint_brings_it_back():
    made = course([0.5], [0.25])
    assert Course.restored(asdict(made)) == made

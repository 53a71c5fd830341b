"""What a run of the workflow shows of its jobs."""

from __future__ import annotations

import pytest

from gradsync.workflow.screen import Screen, duration


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen(clock: Clock) -> Screen:
    screen = Screen(clock)
    assert screen.planned({"train": 4, "table": 2, "total": 6}) == "6 jobs"
    return screen


def run(screen: Screen, clock: Clock, job: int, rule: str, seconds: float) -> str | None:
    screen.started(job, rule, f"{rule} {job}")
    clock.now += seconds
    return screen.ended(job)


def test_each_job_has_a_line_when_it_starts_and_one_when_it_ends(screen: Screen, clock: Clock) -> None:
    assert screen.started(7, "train", "train lenet5-2") == "train lenet5-2"
    clock.now += 30
    assert screen.ended(7) == "train lenet5-2: done in 30 s; 1 of 6"


def test_the_time_left_is_that_of_jobs_alike(screen: Screen, clock: Clock) -> None:
    run(screen, clock, 1, "train", 60)
    run(screen, clock, 2, "train", 60)
    # two trainings of 60 s and a table of 10 s are ahead
    assert run(screen, clock, 3, "table", 10) == "table 3: done in 10 s; 3 of 6, about 2 min left"
    assert screen.left() == pytest.approx(130)


def test_jobs_that_run_at_once_halve_the_time_left(clock: Clock) -> None:
    screen = Screen(clock)
    screen.planned({"train": 8})
    for job in (1, 2, 3, 4):
        screen.started(job, "train", str(job))
        if job % 2 == 0:
            clock.now += 40
            assert screen.ended(job - 1)
            assert screen.ended(job)
    assert screen.left() == pytest.approx(4 * 40 / 2)


def test_of_rules_that_nobody_has_seen_end_nothing_is_told(clock: Clock) -> None:
    screen = Screen(clock)
    screen.planned({"plan": 10, "train": 2, "table_a": 1, "table_b": 4, "claims": 1})
    for job in range(9):
        assert run(screen, clock, job, "plan", 1) == f"plan {job}: done in 1 s; {job + 1} of 18"
    run(screen, clock, 20, "table_a", 2)
    assert screen.left() is None  # trainings are ahead, and may take hours
    line = run(screen, clock, 21, "train", 100)
    # a plan of 1 s, a training of 100 s, four tables of 2 s, and claims, of which none has ended, as the mean of all
    assert screen.left() == pytest.approx(1 + 100 + 4 * 2 + (9 + 2 + 100) / 11)
    assert line == "train 21: done in 2 min; 11 of 18, about 2 min left"


def test_of_a_job_that_runs_its_past_is_not_ahead(screen: Screen, clock: Clock) -> None:
    for job in (1, 2, 3):
        run(screen, clock, job, "train", 50)
    run(screen, clock, 4, "table", 10)
    screen.started(5, "train", "train 5")
    clock.now += 20
    assert screen.left() == pytest.approx(50 - 20 + 10)
    clock.now += 100  # longer than any before: nothing of it is known to be left
    assert screen.left() == pytest.approx(10)


def test_the_last_job_leaves_nothing_and_strangers_are_not_counted(screen: Screen, clock: Clock) -> None:
    assert screen.ended("never started") is None
    for job in range(4):
        run(screen, clock, job, "train", 5)
    run(screen, clock, 8, "table", 5)
    assert run(screen, clock, 9, "table", 5) == "table 9: done in 5 s; 6 of 6"


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (89, "89 s"), (120, "2 min"), (7200, "2.0 h")])
def test_durations_are_read_at_a_glance(seconds: float, words: str) -> None:
    assert duration(seconds) == words

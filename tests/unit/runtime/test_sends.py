"""A send lasts until it has left, if somebody had to wait for that."""

from __future__ import annotations

import time

import pytest

from gradsync.plan.trace import Span
from gradsync.runtime import execute

SECONDS = 0.02


class Leaving:
    """A posted send that leaves so many seconds after somebody has come to wait for it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def wait(self) -> None:
        time.sleep(self.seconds)


def sends(names: list[str], seconds: float) -> execute.Executor:
    """What an executor has posted in turn 3, with its spans; it is made of nothing else."""
    executor = object.__new__(execute.Executor)
    executor.spans = [Span(0, turn, name, "send", "network", 1.0, 1.5) for turn in (2, 3) for name in names]
    executor.pending = {name: {3: execute.Posted([Leaving(seconds)])} for name in names}  # type: ignore[list-item]
    return executor


def test_a_wait_lengthens_the_send_that_it_is_for():
    executor = sends(["pull", "push", "other"], SECONDS)
    before = time.perf_counter()
    executor._sent("push", 3)
    assert executor.pending["push"] == {}
    ends = {(span.turn, span.operation): span.end for span in executor.spans}
    assert before + SECONDS <= ends.pop((3, "push")) <= time.perf_counter()
    assert set(ends.values()) == {1.5}
    assert [span.start for span in executor.spans] == [1.0] * 6


@pytest.mark.parametrize("recorded", [True, False])
def test_a_send_that_has_left_is_as_it_was(recorded, monkeypatch):
    monkeypatch.setattr(execute, "UNNOTICED_SECONDS", 60.0 if recorded else 0.0)
    executor = sends(["push"], 0.0)
    if not recorded:
        executor.spans.clear()
    before = list(executor.spans)
    executor._sent("push", 3)
    assert executor.spans == before

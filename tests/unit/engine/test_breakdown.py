"""The parts of a worker's time add up, and each moment belongs to the part that comes first."""

from __future__ import annotations

import pytest

import methods
import tiny_plans as tiny
from gradsync.engine import breakdown
from gradsync.plan.trace import Span


def span(rank, operation, verb, start, end, lane="compute"):
    return Span(rank, 0, operation, verb, lane, start, end)


def of_server(extra=()):
    """A worker computes for 4 s, sends for 1 s, waits for 3 s, of which the server needs one for its update."""
    spans = [
        span(1, "forward", "need", 1, 2),
        span(1, "ready:layer1", "ready", 2, 5),
        span(1, "push", "send", 5, 6, "network"),
        span(1, "fetch", "recv", 6, 9, "network"),
        span(0, "take", "recv_any", 0, 6, "network"),
        span(0, "apply", "local", 7, 8),
        span(0, "give", "reply", 8, 9, "network"),
        *extra,
    ]
    return breakdown.seconds(tiny.async_server(1), spans, {1: (0.0, 10.0)}, {1: [(0.5, 1.0)]})


def test_each_moment_belongs_to_one_part():
    assert of_server() == {
        breakdown.FOR_BACKWARD: 4.0,
        breakdown.DATA: 0.5,
        breakdown.WORKER_UPDATE: 0.0,
        breakdown.MASTER_UPDATE: 1.0,
        breakdown.AMONG_WORKERS: 0.0,
        breakdown.WITH_MASTER: 3.0,
        breakdown.OTHER: 1.5,
    }


def test_what_is_hidden_behind_computation_takes_no_time():
    assert of_server([span(1, "fetch", "recv", 1, 5, "network"), span(0, "apply", "local", 2, 4)]) == of_server()


def test_what_lies_outside_the_window_does_not_count():
    assert of_server([span(1, "forward", "need", 10, 90)]) == of_server()


@pytest.mark.parametrize(
    ("method", "part"),
    [("sync_easgd1", breakdown.WITH_MASTER), ("sync_easgd2", breakdown.AMONG_WORKERS)],
)
def test_messages_with_a_master_are_told_from_those_between_workers(method, part):
    plan = methods.planned(method, 3)
    working = [1, 2] if part == breakdown.WITH_MASTER else [0, 1, 2]
    spans = [span(rank, "broadcast", "collective", 0, 1, "network") for rank in range(3)]
    spans += [span(rank, "update", "local", 1, 3) for rank in working]
    seconds = breakdown.seconds(plan, spans, dict.fromkeys(working, (0.0, 4.0)), {})
    assert {key: value / len(working) for key, value in seconds.items() if value} == {
        part: 1.0,
        breakdown.WORKER_UPDATE: 2.0,
        breakdown.OTHER: 1.0,
    }


def test_shared_memory_is_the_hosts():
    spans = [span(0, "fetch", "shared_read", 0, 1), span(1, "push", "shared_add", 1, 3)]
    seconds = breakdown.seconds(tiny.hogwild(2), spans, dict.fromkeys((0, 1), (0.0, 3.0)), {})
    assert (seconds[breakdown.WITH_MASTER], seconds[breakdown.OTHER]) == (3.0, 3.0)

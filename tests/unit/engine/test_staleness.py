"""How many updates of others come between a worker's read and its own update."""

from __future__ import annotations

from itertools import count

import pytest

import tiny_plans as tiny
from gradsync.engine.simulate import simulate
from gradsync.engine.staleness import MEMORY, Arrivals, replayed
from gradsync.plan.trace import Span


def taken(order, turn=None):
    """The spans of a master that takes from ranks in this order."""
    turns = zip(order, turn or count(), strict=False)
    return [Span(0, n, "take", "recv_any", "network", n, n + 0.5, source=source) for source, n in turns]


@pytest.mark.parametrize(
    ("order", "staleness"),
    [([1, 1, 1], [0, 0, 0]), ([1, 2, 1, 2], [0, 1, 1, 1]), ([1, 2, 2, 3, 1], [0, 1, 0, 3, 3])],
)
def test_a_master_counts_what_it_took_from_others_meanwhile(order, staleness):
    arrivals = Arrivals(tiny.async_server(3)).take(taken(order))
    assert [each.source for each in arrivals] == order
    assert [each.staleness for each in arrivals] == staleness
    assert replayed(arrivals) == {(0, turn, "take"): source for turn, source in enumerate(order)}


def test_segments_go_on_where_the_one_before_ended():
    turns, arrivals = count(), Arrivals(tiny.async_server(2))
    first, second = arrivals.take(taken([1, 2], turns)), arrivals.take(taken([2, 1], turns))
    assert [each.staleness for each in [*first, *second]] == [0, 1, 0, 2]


def test_additions_to_memory_that_end_between_a_read_and_its_own_count():
    spans = [
        *(Span(rank, 0, "fetch", "shared_read", "compute", rank / 10, 0.5) for rank in range(3)),
        *(Span(rank, 0, "push", "shared_add", "compute", 1, end) for rank, end in ((0, 1.4), (1, 1.2), (2, 1.3))),
        Span(1, 1, "fetch", "shared_read", "compute", 1.35, 1.5),
        Span(1, 1, "push", "shared_add", "compute", 2, 2.1),
    ]
    arrivals = Arrivals(tiny.hogwild(3)).take(spans)
    assert [(each.place, each.source, each.staleness) for each in arrivals] == [
        (MEMORY, 1, 0),
        (MEMORY, 2, 1),
        (MEMORY, 0, 2),
        (MEMORY, 1, 1),  # rank 0's, which was under way when rank 1 read
    ]
    assert not replayed(arrivals)


def test_a_simulated_server_of_equal_workers_is_as_stale_as_it_has_other_workers(server_trace):
    arrivals = Arrivals(tiny.async_server(3)).take(server_trace.spans)
    assert {each.staleness for each in arrivals[3:]} == {2}


@pytest.fixture
def server_trace():
    from gradsync.costs import Linear, Network
    from tiny_workloads import workload

    plan = tiny.async_server(3)
    load = workload([8 * size for size in tiny.SIZES], [1.0, 2.0, 3.0, 4.0], forward=2.0, dtype="float64")
    return simulate(plan, load, Network({"send": Linear(0.5, 0.0)}), turns=4)

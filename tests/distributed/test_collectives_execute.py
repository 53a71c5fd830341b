"""Every collective executed by transfers between real Gloo ranks: sums, traces, memory."""

from itertools import pairwise

import pytest

from gradsync import collectives
from rank_programs import MESSAGES

ACCURACY = {"float64": 1e-12, "float32": 1e-5}


@pytest.mark.parametrize("ranks", [2, 3, 4, *(pytest.param(n, marks=pytest.mark.deep) for n in (5, 8, 9))])
def test_every_collective_sums_messages_of_any_size(on_ranks, ranks):
    results = on_ranks("all_collectives", ranks)
    assert {name for name, _ in results[0]} == set(collectives.names())
    for rank, errors in enumerate(results):
        for (name, dtype), (error, _) in errors.items():
            assert error < ACCURACY[dtype], (name, dtype, rank)


@pytest.mark.parametrize("ranks", [2, 3, 4, pytest.param(8, marks=pytest.mark.deep)])
def test_a_reduce_scatter_and_an_all_gather_give_every_rank_its_piece_and_then_all(on_ranks, ranks):
    results = on_ranks("both_halves", ranks)
    assert {name for name, _ in results[0]} == {
        name for name in collectives.names() if collectives.halves(name, (ranks,))
    }
    for rank, errors in enumerate(results):
        for (name, dtype), both in errors.items():
            assert max(both) < ACCURACY[dtype], (name, dtype, rank)


@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.deep) for n in (2, 5))])
def test_reduce_broadcast_and_all_to_all_bring_every_rank_its_values(on_ranks, ranks):
    kinds = ("reduce", "broadcast", "all_to_all")
    for rank, (errors, _) in enumerate(on_ranks("other_kinds", ranks)):
        assert {*errors} == {(kind, name) for kind in kinds for name in ("native", *collectives.names(kind))}
        for (kind, name), error in errors.items():
            assert error < ACCURACY["float64"], (kind, name, rank)


@pytest.mark.parametrize("device", ["processor", "queues"])
@pytest.mark.parametrize("ranks", [3, *(pytest.param(n, marks=pytest.mark.deep) for n in (2, 5))])
def test_other_kinds_are_timed_over_all_ranks_and_over_axes(on_ranks, ranks, device):
    for _, on_devices in on_ranks("other_kinds", ranks):
        measured = on_devices[device == "queues"]
        names = {*collectives.KINDS[1:], *(f"{kind}@local:{ranks}" for kind in collectives.KINDS)}
        assert {*measured} == names  # a node alone exchanges nothing
        for kind, times in measured.items():
            assert all(size % (4 * ranks) == 0 for size in times) or "all_to_all" not in kind
            assert len(times) > 3
            assert all(seconds > 0 for repeats in times.values() for seconds in repeats)


@pytest.mark.parametrize("ranks", [4, pytest.param(9, marks=pytest.mark.deep)])
def test_a_collective_is_one_operation_of_its_lane(on_ranks, ranks):
    for (name, _), (_, trace) in on_ranks("all_collectives", ranks)[1].items():
        for turn in range(trace.turns):
            spans = trace.of(1, turn)
            assert sorted(span.operation for span in spans) == [f"message{i}" for i in range(len(MESSAGES) + 1)], name
            first = [span for span in spans if span.lane == "first"]
            assert [span.bytes for span in first] == [span.bytes for span in sorted(first, key=lambda it: it.start)]
            assert all(before.end <= after.start for before, after in pairwise(first))

"""FSDP2 simulated: iterations worked out by hand, and what holds of all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsync.costs import Linear
from gradsync.engine import fully_sharded
from gradsync.engine.fully_sharded import WHOLE, iteration
from gradsync.errors import InputError
from gradsync.plan.workload import Layer, Workload

SECOND = Linear(a=2.0, b=0.0)  # of an all-reduce, so that each of its halves takes a second


def workload(*blocks: str | None, forward: float = 2.0, backward: float = 3.0) -> Workload:
    """A layer for each of these blocks, in forward order."""
    layers = [
        Layer(name=f"l{number}", bytes=4, backward_seconds=backward, forward_seconds=forward, block=block)
        for number, block in enumerate(blocks)
    ]
    return Workload(name="w", forward_seconds=forward * len(layers), layers=tuple(reversed(layers)))


def seconds(work: Workload, cost: Linear = SECOND, *, kept: bool = False) -> float:
    return iteration(work, cost, kept=kept, update_seconds=0.5).seconds


def test_a_block_is_gathered_while_another_is_computed_and_scattered_behind_backward():
    # gathers 0..1, 1..2; forward 1..3, 3..5; backward 5..8, 8..11; scatters 8..9, 11..12; update
    assert seconds(workload("a", "b"), kept=True) == 12.5
    # b again 3..4, behind its own forward, and a 5..6
    assert seconds(workload("a", "b")) == 12.5


def test_messages_that_last_longer_than_computation_are_waited_for():
    slow = Linear(a=20.0, b=0.0)
    # gathers 0..10, 10..20; forward 10..12, 20..22; b again 22..32 unless kept
    # backward of b 22..25, scatter 25..35; backward of a 25..28 is held by that scatter, scatter 35..45
    assert seconds(workload("a", "b"), slow, kept=True) == 45.5
    # b again 20..30; a 30..40; backward of b 30..33, its scatter 40..50; backward of a 40..43; scatter 50..60
    assert seconds(workload("a", "b"), slow) == 60.5


def test_no_more_than_one_block_is_gathered_ahead():
    # c's gather waits for b's forward to begin after a's: with forwards of 10 it is no bottleneck, nor early
    work = workload("a", "b", "c", forward=10.0)
    queue = fully_sharded._Queue(*2 * (dict.fromkeys("abc", 1.0),))
    queue.forward(fully_sharded._forward(work))
    assert queue.gathered == {"a": 1.0, "b": 2.0, "c": 3.0}
    work = workload("a", "b", "c", "d", forward=10.0)
    queue = fully_sharded._Queue(*2 * (dict.fromkeys("abcd", 1.0),))
    queue.forward(fully_sharded._forward(work))
    assert queue.gathered["d"] == 12.0  # b is computed from 11 on


def test_the_whole_is_gathered_first_and_scattered_last():
    # whole 0..1, a 1..2; forward of a 2..4, of the head 4..6; backward 6..9, 9..12, scatters 12..13 and 13..14
    assert seconds(workload("a", WHOLE), kept=True) == 14.5
    assert iteration(workload("a", WHOLE), SECOND, kept=False, update_seconds=0).messages == 5


def test_statistics_are_broadcast_before_forward_and_the_update_follows_all():
    work = workload("a", "b")
    plain = iteration(work, SECOND, kept=True, update_seconds=0.0)
    for update in (0.0, 4.0):
        told = iteration(work, SECOND, kept=True, update_seconds=update, broadcast_seconds=0.5)
        assert told.seconds == plain.seconds + 0.5 + update
        assert told.messages == plain.messages + 1


def test_blocks_that_are_not_told_are_refused():
    with pytest.raises(InputError, match=r"'w' does not tell the blocks .* measure layers"):
        seconds(workload("a", None))


@given(
    blocks=st.lists(st.sampled_from(["a", "b", "c", WHOLE]), min_size=1, max_size=8),
    forward=st.floats(0, 3),
    backward=st.floats(0, 3),
    cost=st.floats(0, 9),
)
def test_what_holds_of_all(blocks, forward, backward, cost):
    work, line = workload(*blocks, forward=forward, backward=backward), Linear(a=cost, b=cost)
    again, kept = (iteration(work, line, kept=kept, update_seconds=0.25) for kept in (False, True))
    sizes = fully_sharded.units(work)
    sent = sum(line.seconds(size) for size in sizes.values())
    sent_again = sum(0.5 * line.seconds(size) for unit, size in sizes.items() if unit != WHOLE)
    slack = 1 + 1e-9
    assert max(kept.computation_seconds, sent) <= kept.seconds * slack
    assert kept.seconds <= again.seconds * slack
    assert again.seconds <= (again.computation_seconds + sent + sent_again) * slack  # if nothing overlapped
    assert kept.computation_seconds == pytest.approx((forward + backward) * len(blocks) + 0.25)
    assert again.messages == kept.messages + sum(unit != WHOLE for unit in sizes)

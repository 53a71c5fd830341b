"""What a rank does in a sum over shared memory, and that no order of ranks hangs or reads what is not final."""

from __future__ import annotations

import random
from collections import Counter, deque
from typing import Any

import numpy as np
import pytest

from gradsync import collectives
from gradsync.collectives import ALL_REDUCE
from gradsync.errors import InputError
from gradsync.plan import Collective, Ref
from gradsync.rounds.lowering import exchanges
from gradsync.runtime.memory_rounds import Move, moves

SIZE = 4


def moves_of(ranks: int, algorithm: str = "shared_tree", root: int = 0) -> list[deque[Move]]:
    ref = (Ref("gradient", 0, SIZE),)
    op = Collective(name="sum", kind=ALL_REDUCE, algorithm=algorithm, root=root, reads=ref, writes=ref)
    group = tuple(range(ranks))
    return [deque(moves(list(exchanges(op, rank, group)), algorithm)) for rank in group]


def run(every: list[deque[Move]], chance: random.Random) -> np.ndarray:
    """What ranks have if any of them may be the next to do something; fails if all wait."""
    arrays = np.array([[10.0**rank] * SIZE for rank in range(len(every))])
    rung: Counter[Any] = Counter()
    while any(every):
        able = [
            rank
            for rank, left in enumerate(every)
            if left and (left[0].kind != "wait" or rung[left[0].part.peer, rank, left[0].bell])
        ]
        assert able, "all ranks wait"
        rank = chance.choice(able)
        kind, part, bell = every[rank].popleft()
        match kind:
            case "ring":
                rung[rank, part.peer, bell] += 1
            case "wait":
                rung[part.peer, rank, bell] -= 1
            case "add":
                arrays[rank, part.low : part.high] += arrays[part.peer, part.low : part.high]
            case "copy":
                arrays[rank, part.low : part.high] = arrays[part.peer, part.low : part.high]
    assert not +rung  # nobody rang without being heard
    return arrays


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 13])
def test_every_order_of_ranks_gives_every_rank_the_sum(ranks):
    for seed in range(30):
        chance = random.Random(seed)
        arrays = run(moves_of(ranks, root=chance.randrange(ranks)), chance)
        assert (arrays == sum(10.0**rank for rank in range(ranks))).all()


@pytest.mark.parametrize("bell", [b"r", b"t"])
def test_a_sum_that_does_not_wait_for_a_bell_is_wrong_in_some_order(bell):
    """Else the test above could not fail."""
    wrong = 0
    for seed in range(200):
        every = [deque(move for move in each if (move.kind, move.bell) != ("wait", bell)) for each in moves_of(4)]
        try:
            wrong += not (run(every, random.Random(seed)) == 1111.0).all()
        except AssertionError:  # bells that nobody waited for
            wrong += 1
    assert wrong


def test_rounds_that_read_what_they_write_are_refused():
    with pytest.raises(InputError, match="'recursive_doubling' reads and writes the same elements in a round"):
        moves_of(4, "recursive_doubling")


def test_what_is_summed_in_memory_is_said_by_the_collective_alone():
    assert [name for name in collectives.described() if collectives.in_memory(name)] == ["shared_tree"]
    assert not collectives.in_memory("native")

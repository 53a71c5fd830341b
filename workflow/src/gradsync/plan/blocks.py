"""The turns at which blocks of a training end, and at which a contender may go from one phase to the next.

Contenders take turns in blocks, and the first turn of a block is not timed: no block may have a single turn.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from gradsync.errors import InputError

LEAST_TURNS = 2  # of a block


def borders_of_blocks(first: Sequence[int], turns: int, block: int) -> list[int]:
    """The turns at which blocks of a training begin, and its end; `first`: the first turn of each stage.

    Blocks begin anew with each stage. Of one turn alone nothing could be timed: at the end of a stage it belongs to the
    block before.
    """
    borders: list[int] = []
    for begin, end in pairwise((*first, turns)):
        starts = [start for start in range(begin, end, block) if end - start >= LEAST_TURNS or start == begin]
        borders += starts
    return [*borders, turns]


def switches(at: Sequence[float], borders: Sequence[int], where: str) -> tuple[int, ...]:
    """The first turn of each phase but the first: of those that cut no single turn off a block, the nearest to `at`.

    `borders`: those of blocks. Raises InputError, which says `where`, if a phase has too few turns then.
    """
    turns = borders[-1]
    able = [turn for turn in range(LEAST_TURNS, turns - LEAST_TURNS + 1) if _cuts_well(turn, borders)]
    first = [0, *(min(able, key=lambda turn: abs(turn - wanted), default=0) for wanted in at), turns]
    if any(after - before < LEAST_TURNS for before, after in pairwise(first)):
        raise InputError(
            f"{where}: a phase has fewer than {LEAST_TURNS} of {turns} iterations: train more iterations, or in "
            "shorter blocks"
        )
    return tuple(first[1:-1])


def refuse_cuts(first_turns: Iterable[int], borders: Sequence[int]) -> None:
    """Raises InputError if switches of several contenders leave a single turn between them."""
    for before, after in pairwise(sorted({*first_turns, *borders})):
        if after - before < LEAST_TURNS:
            raise InputError(
                f"phases begin with iterations {before} and {after}, and of one iteration between them nothing could "
                "be timed: give the schemes the same shares, or train them in launches of their own"
            )


def _cuts_well(turn: int, borders: Sequence[int]) -> bool:
    place = bisect_right(borders, turn)
    return turn - borders[place - 1] != 1 and borders[min(place, len(borders) - 1)] - turn != 1

"""The turns at which blocks of a training end, and at which a contender may go from one phase to the next.

Contenders take turns in blocks, and the first turn of a block is not timed: no block may have a single turn. A training
may have any number of turns, so that no list of all borders is made.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from math import floor
from typing import overload

from gradsync.errors import InputError

LEAST_TURNS = 2  # of a block


class Borders(Sequence[int]):
    """Turns in ascending order: those of ranges, one after the other."""

    def __init__(self, ranges: Sequence[range]):
        self.ranges = [each for each in ranges if each]
        self.ends = list(accumulate(map(len, self.ranges)))

    def __len__(self) -> int:
        return self.ends[-1]

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> list[int]: ...
    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [self[each] for each in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        number = bisect_right(self.ends, place)
        return self.ranges[number][place - self.ends[number]]

    def __iter__(self) -> Iterator[int]:
        return (turn for each in self.ranges for turn in each)


def borders_of_blocks(first: Sequence[int], turns: int, block: int) -> Borders:
    """The turns at which blocks of a training begin, and its end; `first`: the first turn of each stage.

    Blocks begin anew with each stage. Of one turn alone nothing could be timed: at the end of a stage it belongs to the
    block before.
    """
    stages = pairwise((*first, turns))
    begun = [range(begin, max(end - LEAST_TURNS, begin) + 1, block) for begin, end in stages if begin < end]
    return Borders([*begun, range(turns, turns + 1)])


class Blocks:
    """The blocks of a training: between borders, and cut at switches."""

    def __init__(self, borders: Sequence[int], switches: Iterable[int]):
        self.borders = borders
        self.cuts = sorted(turn for turn in {*switches} if borders[bisect_left(borders, turn)] != turn)

    @property
    def turns(self) -> int:
        """Of the training."""
        return self.borders[-1]

    def end(self, turn: int) -> int:
        """The end of the block that a turn belongs to."""
        after = (self.borders[bisect_right(self.borders, turn)], *self.cuts[bisect_right(self.cuts, turn) :][:1])
        return min(after)

    def number(self, turn: int) -> int:
        """How many blocks there are before a turn with which one begins."""
        return bisect_left(self.borders, turn) + bisect_left(self.cuts, turn)


def switches(at: Sequence[float], borders: Sequence[int], where: str) -> tuple[int, ...]:
    """The first turn of each phase but the first: of those that cut no single turn off a block, the nearest to `at`.

    `borders`: those of blocks. Raises InputError, which says `where`, if a phase has too few turns then.
    """
    turns = borders[-1]
    first = [0, *(_nearest(wanted, borders) for wanted in at), turns]
    if any(after - before < LEAST_TURNS for before, after in pairwise(first)):
        raise InputError(
            f"{where}: a phase has fewer than {LEAST_TURNS} of {turns} iterations: train more iterations, or in "
            "shorter blocks"
        )
    return tuple(first[1:-1])


def refuse_cuts(first_turns: Iterable[int], borders: Sequence[int]) -> None:
    """Raises InputError if switches of several contenders leave a single turn between them, or beside a border."""
    turns = {*first_turns}
    beside = {border for turn in turns for border in _around(turn, borders)}
    for before, after in pairwise(sorted(turns | beside)):
        if after - before < LEAST_TURNS:
            raise InputError(
                f"phases begin with iterations {before} and {after}, and of one iteration between them nothing could "
                "be timed: give the schemes the same shares, or train them in launches of their own"
            )


def _nearest(wanted: float, borders: Sequence[int]) -> int:
    """The turn nearest to `wanted` that cuts no single turn off, of two the earlier one; 0 if there is none."""
    least, most = LEAST_TURNS, borders[-1] - LEAST_TURNS
    middle = max(min(floor(wanted), most), least - 1)
    sides = range(middle, least - 1, -1), range(middle + 1, most + 1)
    able = (next((turn for turn in side if _cuts_well(turn, borders)), None) for side in sides)
    return min((turn for turn in able if turn is not None), key=lambda turn: abs(turn - wanted), default=0)


def _cuts_well(turn: int, borders: Sequence[int]) -> bool:
    before, after = _around(turn, borders)
    return turn - before != 1 and after - turn != 1


def _around(turn: int, borders: Sequence[int]) -> tuple[int, int]:
    """The border at or before a turn, and that behind it; the end is the last one."""
    place = bisect_right(borders, turn)
    return borders[place - 1], borders[min(place, len(borders) - 1)]

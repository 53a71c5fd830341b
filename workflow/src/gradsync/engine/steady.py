"""Whether a simulated loop repeats itself, and over which of its turns to average.

A loop of operations that wait for one another repeats itself sooner or later, but not always turn by turn: if two ranks
wait for what the other sent a turn before, turns of different lengths alternate (such loops are linear in their
cyclicity: Baccelli, Cohen, Olsder, Quadrat, *Synchronization and Linearity*, Section 3.7). Ranks that don't wait for
one another may never fall into step.

The loop is steady with a period of p turns once everything that starts or ends on any rank does so again p turns later,
in two whole periods that follow one another. Only turns count during which every rank still has turns to do: what a
rank does alone once others have stopped is no longer the plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from gradsync.engine.progress import Event

SAME = 1e-9  # of the period: times that differ by less are the same
EDGE = 1e-6  # of the period: what is so near to the start of a turn counts as at it
LONGEST = 8  # turns: no longer period is tried


class Steady(NamedTuple):
    """Averages are from the start of turn `end - period` to that of turn `end`.

    `reached`: whether the loop repeats itself so; None if there are too few turns to know.
    """

    reached: bool | None
    period: int
    end: int


def steady(events: Sequence[Event], starts: Sequence[float], horizon: float) -> Steady:
    """Of a rank whose turns begin at `starts`; up to `horizon`, when the first rank had done all its turns.

    If the loop does not repeat itself: over the later half of the turns that count; of all turns if none counts.
    """
    if len(starts) < 3:
        return Steady(None, 1, len(starts) - 1)
    end = sum(start <= horizon for start in starts) - 1
    if end < 1:
        end = len(starts) - 1
    lengths = [after - before for before, after in pairwise(starts[: end + 1])]
    for period in range(1, min(LONGEST, end // 2) + 1):
        edges = [starts[end - 2 * period], starts[end - period], starts[end]]
        tolerance = SAME * (edges[2] - edges[1])
        pairs = zip(lengths[-2 * period : -period], lengths[-period:], strict=True)
        if all(abs(last - before) <= tolerance for before, last in pairs) and _repeats(events, edges, tolerance):
            return Steady(True, period, end)
    return Steady(False, max(1, end // 2), end)


def _repeats(events: Sequence[Event], edges: list[float], tolerance: float) -> bool:
    """The same operations of the same ranks start and end between the first two edges as between the last two."""
    edge = EDGE * (edges[1] - edges[0])
    # what is at an edge counts before it: of the very first turn there is nothing yet that ends where it begins
    first, second = (
        sorted(
            (event.rank, event.step, ends, time - low)
            for event in events
            for ends, time in ((False, event.start), (True, event.end))
            if low + edge < time <= high + edge
        )
        for low, high in pairwise(edges)
    )
    return len(first) == len(second) and all(
        one[:3] == other[:3] and abs(one[3] - other[3]) <= tolerance for one, other in zip(first, second, strict=True)
    )

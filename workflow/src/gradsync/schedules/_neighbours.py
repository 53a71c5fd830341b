"""Groupings that differ from one in a message or two: what a local search looks at, and joins in the end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

import numpy as np

BUCKETS = 16  # constant sizes, from SMALLEST bytes to the whole model
SMALLEST = 32 * 1024

Lasts = tuple[int, ...]
"""The last layers of messages of consecutive layers, in backward order."""


def constant_buckets(total: np.ndarray) -> Iterator[Lasts]:
    """Messages of about equal bytes, of several sizes, counted from the end of the net and from its front.

    `total`: bytes of the layers before each, and of all.  # (layers + 1,)
    """
    for size in np.geomspace(min(SMALLEST, total[-1]), total[-1], BUCKETS):
        for ends in (total[1:], total[-1] - total[:-1]):
            borders = np.flatnonzero(np.diff(np.floor(ends / size * (1 - 1e-12)))).tolist()
            yield (*borders, len(total) - 2)


def neighbours(lasts: Lasts, total: Sequence[float]) -> Iterator[Lasts]:
    """Messages of which one is split in the middle, joined with the next, or gives layers to it or takes some."""
    first = 0
    for number, last in enumerate(lasts):
        before, after = lasts[:number], lasts[number + 1 :]
        if last > first:
            middle = (total[first] + total[last + 1]) / 2
            border = min(max(bisect_left(total, middle) - 1, first), last - 1)
            yield (*before, border, last, *after)
        if after:
            yield (*before, *after)
            for moved in sorted({last - 1, last + 1, (first + last) // 2, (last + after[0]) // 2} - {last}):
                if first <= moved < after[0]:
                    yield (*before, moved, *after)
        first = last + 1


def joined(lasts: Lasts, costs_nothing: Callable[[Lasts], bool]) -> Lasts:
    """The messages with as many of them joined to the next as cost nothing, from the end of the net on.

    Twice as many at once as long as that works, half as many once it does not.
    """
    number, count = 0, 1
    while number < len(lasts) - 1:
        count = min(count, len(lasts) - 1 - number)
        fewer = (*lasts[:number], *lasts[number + count :])
        if costs_nothing(fewer):
            lasts, count = fewer, 2 * count
        elif count > 1:
            count //= 2
        else:
            number += 1
    return lasts

"""The median of repeated measurements of one quantity, and how sure it is.

Fewer than six repeats have no interval of 95 %: even the smallest and the largest of five hold the median between them
with 1 - 2/2^5 = 94 % only, of two with 50 %. A number without an interval is not known; no pair of values replaces one.
Repeats are measurements that different moments of the machine could have disturbed: blocks of iterations between which
other contenders ran, sweeps over all message sizes. Iterations of one block, or messages in a row, are no repeats.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import numpy as np

CONFIDENCE = 0.95
NONE = "no interval"  # what people read in the place of an interval


def median_interval(values: Any, confidence: float = CONFIDENCE) -> tuple[float | None, float, float | None]:
    """(low, median, high): the distribution-free interval of the median by order statistics.

    Both ends are None if there are too few values (`repeats_needed`). If there are none, or one is not finite, the
    median is NaN too.
    """
    ordered = np.sort(np.asarray(values, float))
    if not len(ordered) or not np.isfinite(ordered).all():
        return None, float("nan"), None
    n, k = len(ordered), _outside(len(ordered), confidence)
    middle = float(np.median(ordered))
    return (float(ordered[k - 1]), middle, float(ordered[n - k])) if k else (None, middle, None)


def repeats_needed(confidence: float = CONFIDENCE) -> int:
    """The fewest values of which a median has an interval: 6 for 95 %."""
    return next(n for n in count(1) if _outside(n, confidence))


def jackknife(
    value: float, without: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float | None, float | None]:
    """(low, high) of a number that follows from all repeats together; `without`: from all but each one in turn.

    Student's t with the jackknife's deviation. Both ends are None for too few repeats.
    """
    from scipy.special import stdtrit

    n = len(without)
    if n < repeats_needed(confidence):
        return None, None
    deviation = np.sqrt((n - 1) / n * ((np.array(without) - np.mean(without)) ** 2).sum())
    half = float(stdtrit(n - 1, 0.5 + confidence / 2) * deviation)
    return (value - half, value + half) if np.isfinite(half) else (None, None)


def shown(measured: Iterable[float | None], form: str, scale: float = 1.0) -> str:
    """(value, low, high) as people read it, or the value and that it has no interval; - if there is no value."""
    middle, low, high = measured
    if middle is None or np.isnan(middle):
        return "-"
    known = not any(end is None or np.isnan(end) for end in (low, high))
    ends = " .. ".join(format(scale * end, form) for end in (low, high) if end is not None) if known else NONE
    return f"{format(scale * middle, form)} ({ends})"


def _outside(n: int, confidence: float) -> int:
    """The largest k for which fewer than k of n values lie below the median with at most half of what may miss."""
    from scipy.special import bdtr  # of scipy.stats, which takes a second to load, this is binom.cdf

    below = bdtr(np.arange(n + 1), n, 0.5)
    return int(np.searchsorted(below, (1 - confidence) / 2, side="right"))

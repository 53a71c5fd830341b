"""The line a + b m through all-reduce times, with intervals of its a and b.

Times are measured in several sweeps over all sizes, one sweep after the other, each on connections of its own. The
line is that of the mean times, by least relative squares with a, b >= 0. Each sweep also gives a line of its own; the
interval of a (and of b) is Student's t interval of the mean of so many. It says what a measurement of the same length
at another moment would give; repeats within one sweep, which are all disturbed alike, would not show that.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gradsync.errors import InputError
from gradsync.statistics.intervals import repeats_needed

METHOD = "Student's t interval of the lines of single sweeps over all sizes"


class Line(BaseModel):
    """T(m) = a + b m: `a_seconds`, `b_seconds_per_byte`, each with the interval (low, high) of `confidence`.

    Residuals are |line / measured - 1|, over `points` sizes from `from_bytes` to `to_bytes`. An interval is None if
    there were too few sweeps (`intervals.repeats_needed`).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    a_seconds: float = Field(ge=0, allow_inf_nan=False)
    a_interval: tuple[float, float] | None
    b_seconds_per_byte: float = Field(ge=0, allow_inf_nan=False)
    b_interval: tuple[float, float] | None
    confidence: float = Field(gt=0, lt=1)
    sweeps: int = Field(ge=1)
    mean_residual: float = Field(ge=0)
    worst_residual: float = Field(ge=0)
    points: int = Field(ge=2)
    from_bytes: int = Field(gt=0)
    to_bytes: int = Field(gt=0)


def least_relative_squares(sizes: Any, seconds: Any) -> tuple[float, float]:
    """(a, b), both >= 0, that minimise the sum of ((a + b m) / t - 1)^2."""
    from scipy.optimize import nnls

    m, t = np.asarray(sizes, float), np.asarray(seconds, float)
    unit_a, unit_b = t.min(), (t / m).min()  # so that both columns are of one order
    (a, b), _ = nnls(np.stack([unit_a / t, unit_b * m / t], 1), np.ones(len(m)))
    return float(a * unit_a), float(b * unit_b)


def through(sizes: Any, sweeps: Any, confidence: float = 0.95) -> Line:
    """The line through the mean seconds of each size in each sweep (seconds).  # sweeps: (sweeps, sizes)

    Raises InputError for fewer than two sizes or times that are not positive.
    """
    from scipy.special import stdtrit

    m, times = np.asarray(sizes, float), np.atleast_2d(np.asarray(sweeps, float))
    if len(np.unique(m)) < 2 or not (np.isfinite(times).all() and (times > 0).all() and (m > 0).all()):
        raise InputError(
            f"all-reduce times: a line needs two sizes and positive seconds; given {len(np.unique(m))} sizes"
        )
    mean = times.mean(axis=0)
    both = least_relative_squares(m, mean)
    intervals: list[tuple[float, float] | None] = [None, None]
    if len(times) >= repeats_needed(confidence):
        of_sweeps = np.array([least_relative_squares(m, seconds) for seconds in times])  # (sweeps, 2)
        freedom = len(times) - 1
        half = float(stdtrit(freedom, 0.5 + confidence / 2)) * of_sweeps.std(axis=0, ddof=1) / np.sqrt(len(times))
        intervals = [(max(0.0, value - width), value + width) for value, width in zip(both, half.tolist(), strict=True)]
    residuals = np.abs((both[0] + both[1] * m) / mean - 1)
    return Line(
        a_seconds=both[0],
        a_interval=intervals[0],
        b_seconds_per_byte=both[1],
        b_interval=intervals[1],
        confidence=confidence,
        sweeps=len(times),
        mean_residual=float(residuals.mean()),
        worst_residual=float(residuals.max()),
        points=len(m),
        from_bytes=int(m.min()),
        to_bytes=int(m.max()),
    )

"""Table cells of a repeated quantity: COLUMN, its interval in COLUMN_low and _high, its repeats in COLUMN_samples.

The interval is empty if the repeats are too few for one (column `repeats` has how many there were). Repeats are a
JSON list in the order of the launch that `launch` names, so that the ledger and other tables can take those of two
contenders pair by pair. A row of a table is a mapping or a pandas Series.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gradsync.errors import InputError
from gradsync.statistics.intervals import jackknife, median_interval, shown
from gradsync.statistics.quiet import UNDER_LOAD

REPEATS, LAUNCH = "repeats", "launch"
LOW, HIGH, SAMPLES = "_low", "_high", "_samples"


def columns(*names: str, samples: bool = True) -> list[str]:
    """Names of columns with those of their intervals and repeats."""
    return [f"{name}{end}" for name in names for end in ("", LOW, HIGH, *([SAMPLES] if samples else []))]


def cells(column: str, samples: Sequence[float] | np.ndarray) -> dict[str, Any]:
    """The cells of a column that is the median of `samples`; no cells if there are none or one is not finite."""
    if not len(samples) or not np.isfinite(samples).all():
        return {}
    low, middle, high = median_interval(samples)
    return interval(column, middle, low, high) | {f"{column}{SAMPLES}": json.dumps([float(each) for each in samples])}


def interval(column: str, middle: float, low: float | None, high: float | None) -> dict[str, Any]:
    """The cells of a column that is no median of repeats; its interval was found otherwise, or there is none."""
    return {column: middle, f"{column}{LOW}": low, f"{column}{HIGH}": high}


def jackknifed(whole: Mapping[str, float], without: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """The cells of numbers that follow from all repeats together; `without`: from all but each one in turn."""
    row: dict[str, Any] = {}
    for column, middle in whole.items():
        row |= interval(column, middle, *jackknife(middle, [each[column] for each in without]))
    return row


def shown_only(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without intervals and repeats: its numbers are shown and decide nothing."""
    return {key: value for key, value in row.items() if not key.endswith((LOW, HIGH, SAMPLES))}


def of_a_quiet_machine(row: Mapping[str, Any], notes: Iterable[str]) -> dict[str, Any]:
    """The row, only shown if a note of its launch says that other work took cores meanwhile."""
    return shown_only(row) if any(UNDER_LOAD in note for note in notes) else dict(row)


def samples(row: Any, column: str) -> np.ndarray:
    """The repeats of a column in a row, or none if it has none; raises InputError if they are no list of numbers."""
    cell = row.get(f"{column}{SAMPLES}")
    if not isinstance(cell, str) or not cell:
        return np.array([])
    try:
        repeats = np.array(json.loads(cell), float)
    except (ValueError, TypeError):
        repeats = np.array(np.nan)
    if repeats.ndim != 1:
        raise InputError(f"{column}{SAMPLES}: no list of numbers: {cell[:40]!r}")
    return repeats


def paired(function: Callable[[Any, Any], Any], row: Any, other: Any, column: str) -> np.ndarray:
    """`function` of one column of two rows, pair by pair; none if they are no pairs of one launch."""
    row_samples, other_samples = samples(row, column), samples(other, column)
    if len(row_samples) != len(other_samples) or not row.get(LAUNCH) or row.get(LAUNCH) != other.get(LAUNCH):
        return np.array([])
    return np.asarray(function(row_samples, other_samples))


def text(row: Any, column: str, form: str, scale: float = 1.0) -> str:
    """A cell with its interval, as people read it."""
    return shown((row.get(f"{column}{end}") for end in ("", LOW, HIGH)), form, scale)


def ends(row: Any, column: str) -> tuple[float, float]:
    """(low, high) of a row; NaN if there is no interval."""
    low, high = (row.get(f"{column}{end}") for end in (LOW, HIGH))
    return (np.nan if low is None else float(low), np.nan if high is None else float(high))

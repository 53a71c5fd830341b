"""Rows of a benchmark: what is measured of a task, its target, and whether it is met (`met`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradsync.files.results import Result, machine

Row = dict[str, Any]
CONFORMANCE = ("oracle_difference", "difference_to_first")


def result(rows: Sequence[Row], **more: Any) -> Row:
    """What a benchmark writes: its rows, whether all of them are met, and the machine."""
    return {"rows": rows, **more, "met": all(row["met"] for row in rows), "machine": machine()}


def timed(task: str, measured: Mapping[str, Any], ratio: float, target: float | None) -> Row:
    """A task whose `seconds`, among what was measured, are to be less than `target` (None: no target)."""
    met = target is None or measured["seconds"] < target
    return {"task": task, **measured, "ratio": ratio, "target_seconds": target, "met": met}


def ratio(interval: tuple[float | None, float, float | None]) -> Row:
    """The columns of a ratio with its interval (low, ratio, high)."""
    low, middle, high = interval
    return {"ratio": middle, "ratio_low": low, "ratio_high": high}


def conformance(run: Result) -> Row:
    """How far the parameters of a run are from the oracle's and from the first contender's, as far as compared."""
    return {key: run.conformance[key] for key in CONFORMANCE if key in run.conformance}

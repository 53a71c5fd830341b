"""Whether a file of another run is what was promised of it: the same content, or the same numbers within tolerance."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gradsync.artifact.promises import IDENTICAL, RELATIVE, RUNS, TOLERANCE
from gradsync.claims import cells
from gradsync.claims.cells import Row
from gradsync.files import reading
from gradsync.files.results import TIMED

COMPARED = (".csv", ".json")  # what people read is written from these, and pictures are drawn from them
Select = Callable[[Row], bool]


def broken(one: Path, other: Path, promise: str) -> str:
    """The first place at which a file isn't what was promised, in words; empty if there is none.

    Raises InputError if either can't be read.
    """
    if promise not in (IDENTICAL, TOLERANCE, RUNS) or one.suffix not in COMPARED:
        return ""
    pair = reading.raw(one, "result"), reading.raw(other, "result")
    if pair[0] == pair[1]:
        return ""
    if one.suffix == ".json":
        same = _close(reading.json_of(one, "result"), reading.json_of(other, "result"), 0.0)
        return "" if same else "its content"
    select: Select = _without_runs if promise == RUNS else lambda row: True
    return _cell(_numbered(one, select), _numbered(other, select), 0.0 if promise == IDENTICAL else RELATIVE)


def _without_runs(row: Row) -> bool:
    """Whether no run of this machine goes into a row: it was not timed, nor does it predict a launch."""
    return row.get("rung", "simulated") not in TIMED and not row.get("launch")


def _numbered(path: Path, select: Select) -> list[tuple[int, Row]]:
    return [(number, row) for number, row in enumerate(cells.read(path) or [], 1) if select(row)]


def _cell(first: Iterable[tuple[int, Row]], second: Iterable[tuple[int, Row]], relative: float) -> str:
    """Where two tables differ first by more than a tolerance; empty if nowhere."""
    for one, other in zip_longest(first, second):
        number, row = one or other
        if one is None or other is None or [*row] != [*other[1]]:
            return f"row {number}"
        for column, cell in row.items():
            there = other[1][column]
            if cell != there and not _close(_parsed(cell), _parsed(there), relative):
                return f"row {number}, {column} ({cell} and {there})"
    return ""


def _parsed(cell: str) -> Any:
    """A cell as a number or a list of numbers, if it is one."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _close(one: Any, other: Any, relative: float) -> bool:
    """Whether two contents are the same, their numbers within a relative tolerance."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key], relative) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_close(*pair, relative) for pair in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        try:
            return math.isclose(one, other, rel_tol=relative)
        except OverflowError:  # a whole number that no float holds
            return False
    return bool(one == other)

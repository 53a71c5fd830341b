"""The rows of a table that were timed. A row whose note says why nothing was timed is none of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradsync.claims.cells import Row
from gradsync.files.results import TIMED

COMPANIONS = ("_low", "_high", "_samples")  # of a column with values: its interval and its repeats
OF_RUNS = ("launch", "repeats")  # columns that only rows of runs fill


def timed(rows: Iterable[Row]) -> list[Row]:
    """The rows of a timed rung that have a value, or that name the runs that they come from."""
    return [row for row in rows if row.get("rung") in TIMED and _has_value(row)]


def rungs(rows: Sequence[Row]) -> tuple[str, ...]:
    """The timed rungs that these rows have values on."""
    there = {row["rung"] for row in timed(rows)}
    return tuple(rung for rung in TIMED if rung in there)


def _has_value(row: Row) -> bool:
    if not row.get("note") or any(row.get(column) for column in OF_RUNS):
        return True
    return any(cell for column, cell in row.items() if any(f"{column}{each}" in row for each in COMPANIONS))

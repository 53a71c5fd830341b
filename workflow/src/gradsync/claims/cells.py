"""The cells of result tables as a check asks for them: numbers, and how sure each is.

Tables are CSV files, one row a value; a table without a `rung` column is simulated. Rows that differ in `assumption`
are points of a band: what a paper doesn't publish is assumed.

On the rungs whose numbers are timed, every cell needs an interval, but for the columns that the paper file names as
`exact`: counted, or computed from what is not timed. If a table has the repeats of a column (COLUMN_samples) the
interval is theirs, else that of COLUMN_low and COLUMN_high, of at least as many `repeats` as an interval needs. A cell
without one is shown and decides nothing. A row stands for one input of a claim that is made for all, or for as many as
its column `instances` has.
"""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

from gradsync.claims.expressions import Key, Keys, Missing, shown
from gradsync.claims.published import Claim, Paper
from gradsync.errors import InputError
from gradsync.files.results import TIMED
from gradsync.statistics.intervals import repeats_needed
from gradsync.statistics.spans import Span

Row = dict[str, str]
ROUNDING = 1e-6  # relative, between a cell and the median of its repeats


def read(path: Path) -> list[Row] | None:
    """Rows of a CSV file, cells stripped; None if there is no such file."""
    if not path.exists():
        return None
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"table {path}: can't be read: {error}") from None
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise InputError(f"table {path}, row {line}: not as many cells as columns")
    return [{key: cell.strip() for key, cell in row.items()} for row in rows]


class Cells:
    """The rows of one rung of one table, as a claim looks cells up in them."""

    def __init__(self, paper: Paper, claim: Claim, rung: str, rows: list[Row]) -> None:
        """Raises InputError if a column that is said to be exact is not in the table."""
        self.claim, self.schemes, self.what = claim, paper.schemes, f"table {claim.table} has no {rung}"
        self.timed, self.exact = rung in TIMED, paper.exact.get(claim.table, ())
        self.rows = [row for row in rows if row.get("rung", "simulated") == rung]
        self.at: dict[str, list[Row]] = {}  # the same by point of the band; "": those without an assumption
        for row in self.rows:
            self.at.setdefault(row.get("assumption", ""), []).append(row)
        if rows and (unknown := [column for column in self.exact if column not in rows[0]]):
            raise InputError(f"exact: the table {claim.table} has no column {unknown[0]!r}")
        self.labels: dict[str, None] = {}  # assumptions behind the cells looked up, in order of the table
        self.unknown: dict[str, float] = {}  # cells without an interval, and of how many repeats they are

    def points(self) -> tuple[list[str], list[str]]:
        """(points of the band that the claim is decided over, why others are left out); without a band it is ('',)."""
        kept = [label for label in self.labels if not self.claim.leaves_out(label)]
        reasons = [
            f"{count} of {len(self.labels)} points are left out: {each.why}"
            for each in self.claim.without
            if (count := sum(each.names(label) for label in self.labels))
        ]
        if self.labels and not kept:
            raise Missing(f"no point of the assumed band is left: {'; '.join(reasons)}")
        return kept or [""], reasons

    def note_labels(self, column: str, keys: Keys) -> float:
        """Lookup that only collects which points of the band a check depends on."""
        self.labels.update(
            {row["assumption"]: None for row in self._matching(keys, self.rows) if row.get("assumption")}
        )
        return math.nan

    def cell(self, point: str, column: str, keys: Keys) -> Span:
        """Lookup of a value at one point of the band; rows without an assumption hold at every point."""
        rows = self._matching(keys, self.at.get(point, [])) or self._matching(keys, self.at.get("", []))
        key_text = shown(keys)
        if not rows:
            raise Missing(f"{self.what} row with {key_text}")
        if len(rows) > 1:
            raise InputError(f"{len(rows)} rows have {key_text}: add a key to the check")
        if column not in rows[0]:
            raise InputError(f"the table has no column {column!r} (it has: {', '.join(rows[0])})")
        number = _number(rows[0], column, key_text)
        if not math.isfinite(number):
            raise Missing(rows[0].get("note") or f"{self.what} {column} for {key_text}")
        inputs = _count(rows[0], "instances", key_text, 1)
        if not self.timed or column in self.exact:
            return Span.exactly(number, inputs)
        repeats, span = _measured(rows[0], column, number, key_text)
        if not span.known:
            self.unknown[f"{column} for {key_text}"] = repeats
        return span._replace(inputs=inputs)

    def not_known(self) -> str:
        """Why there is no interval: the cell with the fewest repeats, and how many an interval needs."""
        name, repeats = min(self.unknown.items(), key=lambda each: each[1])
        others = f" (and of {len(self.unknown) - 1} others)" if len(self.unknown) > 1 else ""
        needed = repeats_needed()
        if repeats < 0:
            return f"no interval of {name}{others}: the table does not tell of how many repeats"
        if repeats < needed:
            return f"no interval of {name}{others}: {repeats:g} repeats, {needed} are needed"
        return f"no interval of {name}{others}"

    def _matching(self, keys: Keys, rows: list[Row]) -> list[Row]:
        if "scheme" in keys:
            scheme = self.schemes[str(keys["scheme"])]
            if scheme is None:
                raise Missing(f"scheme {keys['scheme']!r} of the paper has no counterpart here yet")
            keys = {**keys, "scheme": scheme}
        if unknown := keys.keys() - self.rows[0].keys():
            raise InputError(f"the table has no column {min(unknown)!r} (it has: {', '.join(self.rows[0])})")
        for key, value in keys.items():  # key by key: a claim over a band looks thousands of cells up
            same = {cell for cell in {row[key] for row in rows} if _same(cell, value)}
            rows = [row for row in rows if row[key] in same]
        return rows


def _measured(row: Row, column: str, number: float, key_text: str) -> tuple[float, Span]:
    """(number of repeats, -1 if the table does not have it; the number with its interval)."""
    if row.get(f"{column}_samples"):
        samples = _samples(row, column, key_text)
        span = Span.repeated(samples, row.get("launch", ""))
        if not math.isclose(span.value, number, rel_tol=ROUNDING):
            raise InputError(f"{column} of {key_text} is {number:g}, the median of its repeats {span.value:g}")
        return len(samples), span
    repeats = _count(row, "repeats", key_text, -1)
    end_columns = [f"{column}{end}" for end in ("_low", "_high")]
    low, high = (_number(row, name, key_text) if name in row else math.nan for name in end_columns)
    if repeats < repeats_needed() or not (math.isfinite(low) and math.isfinite(high)):
        return repeats, Span.unknown(number)
    if not low <= number <= high:
        raise InputError(f"{column} of {key_text} is {number:g}, outside its interval from {low:g} to {high:g}")
    return repeats, Span(number, low, high)


def _samples(row: Row, column: str, key_text: str) -> list[float]:
    try:
        samples = [float(each) for each in json.loads(row[f"{column}_samples"])]
    except (ValueError, TypeError):
        samples = []
    if not samples or not all(map(math.isfinite, samples)):
        raise InputError(f"{column}_samples of {key_text} is no list of numbers: {row[f'{column}_samples'][:40]!r}")
    return samples


def _count(row: Row, column: str, key_text: str, default: int) -> int:
    number = _number(row, column, key_text) if column in row else math.nan
    return int(number) if math.isfinite(number) else default


def _number(row: Row, column: str, key_text: str) -> float:
    """The number of a cell; NaN if it is empty."""
    try:
        return float(row[column] or "nan")
    except ValueError:
        raise InputError(f"{column} of {key_text} is not a number: {row[column]!r}") from None


def _same(cell: str, key: Key) -> bool:
    if isinstance(key, str):
        return cell == key
    try:
        return float(cell) == key
    except ValueError:
        return False

"""The claims ledger: what a paper says, checked over the result tables, with one verdict a rung.

A paper file (`config/papers/*.yaml`) gives each claim a check in the language of `expressions`; schemes have the
paper's names there. Tables are `<tables>/<paper>/<id>.csv`, one row a value; a table without a `rung` column is
simulated. Rows that differ in `assumption` are points of a band: what a paper doesn't publish is assumed, and the
claim is decided over the whole band. The margin of a verdict is the worst over the band.

What was measured or emulated is known within an interval, where the table has it (columns COLUMN_low, COLUMN_high): a
verdict that would be another one elsewhere in it is none.
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gradsync.errors import InputError
from gradsync.expressions import Key, Keys, Missing, Span, Truth, Walk, shown
from gradsync.published import Claim, Paper, load, naming

VERSION = 1
CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "not decidable here"
CONSTRUCTED, BROKEN = "holds by construction", "fails although true by construction"

Row = dict[str, str]


class Compared(NamedTuple):
    """Both sides of one comparison, each (smallest, largest) over the band."""

    comparison: str
    at: str
    left: tuple[float, float]
    right: tuple[float, float]

    def __str__(self) -> str:
        spans = (f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}" for low, high in (self.left, self.right))
        return " vs ".join(spans) + (f" at {self.at}" if self.at else "")


@dataclass(frozen=True)
class Verdict:
    """What one rung says of one claim; `compared` starts with the comparison that decides at the worst point."""

    paper: str
    claim: str
    place: str
    text: str
    table: str
    rung: str
    verdict: str
    reason: str
    counted: bool = True
    note: str = ""
    margin: float | None = None
    holds: int = 0  # points of the band at which the check holds
    points: int = 0
    compared: tuple[Compared, ...] = ()


class _Cells:
    """The rows of one rung of one table."""

    def __init__(self, paper: Paper, claim: Claim, rung: str, rows: list[Row]) -> None:
        self.schemes, self.what, self.timed = paper.schemes, f"table {claim.table} has no {rung}", rung != "simulated"
        self.rows = [row for row in rows if row.get("rung", "simulated") == rung]
        self.labels: dict[str, None] = {}  # assumptions behind the cells looked up, in order of the table

    def note_labels(self, column: str, keys: Keys) -> float:
        """Lookup that only collects which points of the band a check depends on."""
        self.labels.update({row["assumption"]: None for row in self._matching(keys) if row.get("assumption")})
        return math.nan

    def cell(self, point: str, column: str, keys: Keys) -> Span:
        """Lookup of a value at one point of the band; rows without an assumption hold at every point."""
        found = self._matching(keys)
        found = [row for row in found if row.get("assumption", "") == point] or [
            row for row in found if not row.get("assumption")
        ]
        wanted = shown(keys)
        if not found:
            raise Missing(f"{self.what} row with {wanted}")
        if len(found) > 1:
            raise InputError(f"{len(found)} rows have {wanted}: add a key to the check")
        if column not in found[0]:
            raise InputError(f"the table has no column {column!r} (it has: {', '.join(found[0])})")
        number = _number(found[0], column, wanted)
        if not math.isfinite(number):
            raise Missing(found[0].get("note") or f"{self.what} {column} for {wanted}")
        ends = [f"{column}_low", f"{column}_high"]
        if not self.timed or not found[0].keys() >= {*ends}:
            return Span.exactly(number)
        low, high = (_number(found[0], end, wanted) for end in ends)
        return Span(number, low, high) if low <= number <= high else Span.exactly(number)

    def _matching(self, keys: Keys) -> list[Row]:
        if "scheme" in keys:
            ours = self.schemes[str(keys["scheme"])]
            if ours is None:
                raise Missing(f"scheme {keys['scheme']!r} of the paper has no counterpart here yet")
            keys = {**keys, "scheme": ours}
        if self.rows and (unknown := keys.keys() - self.rows[0].keys()):
            raise InputError(f"the table has no column {min(unknown)!r} (it has: {', '.join(self.rows[0])})")
        return [row for row in self.rows if all(_same(row[key], value) for key, value in keys.items())]


def _number(row: Row, column: str, wanted: str) -> float:
    """NaN where the cell is empty."""
    try:
        return float(row[column] or "nan")
    except ValueError:
        raise InputError(f"{column} of {wanted} is not a number: {row[column]!r}") from None


def _same(cell: str, key: Key) -> bool:
    if isinstance(key, str):
        return cell == key
    try:
        return float(cell) == key
    except ValueError:
        return False


def evaluate(paper_file: str | Path, tables_dir: str | Path) -> list[Verdict]:
    """Verdicts of all claims of a paper, one for each rung of each claim, in the order of the file."""
    paper = load(paper_file)
    folder = Path(tables_dir) / paper.meta.key
    tables = {claim.table: _rows(folder / f"{claim.table}.csv") for claim in paper.claims}
    verdicts = []
    for claim in paper.claims:
        for rung in claim.rungs:
            with naming(paper_file, claim):
                verdicts.append(_verdict(paper, claim, rung, tables[claim.table]))
    return verdicts


def _rows(path: Path) -> list[Row] | None:
    """Rows of a CSV file, cells stripped; None where there is no such file."""
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


def _verdict(paper: Paper, claim: Claim, rung: str, rows: list[Row] | None) -> Verdict:
    constructed = claim.by_construction and rung == "simulated"
    about = (paper.meta.key, claim.id, claim.place, claim.text, claim.table, rung)
    note, counted = " ".join(filter(None, (claim.why if constructed else None, claim.note))), not constructed
    cells = _Cells(paper, claim, rung, rows or [])
    point, truths, walks = "", [], []
    try:
        if not cells.rows:
            raise Missing(f"table {claim.table} has not been made" if rows is None else f"{cells.what} rows")
        Walk(cells.note_labels).run(claim.check)
        for point in cells.labels or [""]:
            walks.append(Walk(partial(cells.cell, point)))
            truths.append(walks[-1].run(claim.check))
    except Missing as missing:
        at = f" (where {point})" if point else ""
        return Verdict(*about, UNDECIDED, f"{missing}{at}", counted=counted, note=note)
    holds, points = sum(truth.margin >= 0 for truth in truths), len(truths)
    verdict = CONFIRMED if holds == points else UNDECIDED if holds and not claim.universal else REFUTED
    if constructed:
        verdict = CONSTRUCTED if holds == points else BROKEN
    reason = f"holds at {holds} of {points} points of the assumed band" if points > 1 else ""
    worst = min(truths)
    if not all(truth.known for truth in truths):
        ends = min(truth.least for truth in truths), min(truth.most for truth in truths)
        verdict, reason = UNDECIDED, f"within what was measured: {_interval(*ends)} over the 95 % intervals"
    if claim.one_sided and rung == "simulated" and verdict != CONFIRMED:
        verdict, reason = UNDECIDED, "; ".join(filter(None, (reason, claim.one_sided)))
    compared = _compared(worst, walks)
    return Verdict(*about, verdict, reason, counted, note, worst.margin, holds, points, compared)


def _interval(least: float, most: float) -> str:
    return f"a margin of {100 * least:+.1f} to {100 * most:+.1f} %"


def _compared(worst: Truth, walks: list[Walk]) -> tuple[Compared, ...]:
    """Every comparison of the check over the band, the one that decides at the worst point first."""
    names = sorted(walks[0].sides, key=lambda name: name != worst.decides)
    sides = [(name, list(zip(*(walk.sides[name] for walk in walks), strict=True))) for name in names]
    return tuple(Compared(*name, (min(x), max(x)), (min(y), max(y))) for name, (x, y) in sides)


def ledger_json(verdicts: Sequence[Verdict]) -> str:
    """The ledger as versioned JSON."""
    ledger = {
        "version": VERSION,
        "summary": summary(verdicts),
        "verdicts": [
            {**asdict(verdict), "compared": [item._asdict() for item in verdict.compared]} for verdict in verdicts
        ],
    }
    return json.dumps(ledger, indent=1, allow_nan=False) + "\n"


def summary(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts of each kind."""
    times = Counter(verdict.verdict for verdict in verdicts)
    return {kind: times[kind] for kind in (CONFIRMED, REFUTED, UNDECIDED, CONSTRUCTED, BROKEN)}


def ledger_markdown(verdicts: Sequence[Verdict]) -> str:
    """The ledger for people: a table a paper, under its key where there are several."""
    counts = ", ".join(f"{times} {kind}" for kind, times in summary(verdicts).items() if times)
    lines = [f"{len(verdicts)} verdicts: {counts}. What holds by construction proves nothing and isn't counted."]
    papers = list(dict.fromkeys(verdict.paper for verdict in verdicts))
    for paper in papers:
        lines += ["", *([f"## {paper}", ""] if len(papers) > 1 else [])]
        lines += _of_a_paper([verdict for verdict in verdicts if verdict.paper == paper])
    return "\n".join(lines).rstrip() + "\n"


def _of_a_paper(verdicts: Sequence[Verdict]) -> list[str]:
    """What was computed first, then what waits, the rungs of a reason in one row; notes below."""
    rows: dict[tuple[str, str, str, str], tuple[Verdict, list[str]]] = {}
    for verdict in sorted(verdicts, key=lambda verdict: verdict.margin is None):
        rung = "" if verdict.margin is None else verdict.rung
        row = rows.setdefault((verdict.claim, rung, verdict.verdict, verdict.reason), (verdict, []))
        row[1].append(verdict.rung)
    lines = [_line("claim", "place", "what the paper says", "rung", "verdict", "margin", "values and reason")]
    lines += ["|---|---|---|---|---|---:|---|"]
    for v, rungs in rows.values():
        margin = "" if v.margin is None else f"{100 * v.margin + 0.0:+.1f} %"  # + 0.0: none is -0.0
        why = "; ".join(filter(None, (str(v.compared[0]) if v.compared else "", v.reason)))
        lines.append(_line(f"`{v.claim}`", v.place, v.text, ", ".join(rungs), f"**{v.verdict}**", margin, why))
    notes = dict.fromkeys(
        f"- `{verdict.claim}`: {' '.join(verdict.note.split())}" for verdict in verdicts if verdict.note
    )
    return [*lines, "", *notes]


def _line(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |"

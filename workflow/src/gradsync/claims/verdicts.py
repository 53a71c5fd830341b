"""What a paper says, checked over the result tables, with one verdict per rung.

A paper file (`config/papers/*.yaml`) gives each claim a check in the language of `expressions`; schemes have the
paper's names there. Tables are `<tables>/<paper>/<id>.csv` (`cells.py`). If a table has a band of assumptions the
claim is decided over all of it, but for points that were fitted to the claim's own numbers (`without`). The margin of a
verdict is the worst over the band.

What was measured or emulated is known within an interval: a verdict that would be another one elsewhere in it is none,
and what has no interval decides nothing. A claim that is made for every input (`universal`) is refuted by one, and of
inputs that were tried a verdict can only state that none of so many refutes it.

What proves nothing is not counted: claims that are true by construction, or were changed after their value was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from gradsync.claims import cells
from gradsync.claims.cells import Cells, Row
from gradsync.claims.expressions import Missing, Truth, Walk
from gradsync.claims.published import Claim, Paper, load, naming

CONFIRMED, REFUTED, UNDECIDED = "confirmed", "refuted", "not decidable here"
UNCONTRADICTED = "no counterexample found"
CONSTRUCTED, BROKEN = "holds by construction", "fails although true by construction"
HOLDS_AS_CHANGED, FAILS_AS_CHANGED = (f"{what}, changed after its value was seen" for what in ("holds", "fails"))
KINDS = (
    *(CONFIRMED, REFUTED, UNCONTRADICTED, UNDECIDED),
    *(CONSTRUCTED, BROKEN, HOLDS_AS_CHANGED, FAILS_AS_CHANGED),
)
COMPUTED = ("derived", "simulated")  # rungs on which a claim may be true by construction
NOT_MADE = "has not been made"  # of a table: how the reason ends


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
    """The verdict of one rung on one claim; `compared` starts with the comparison that decides at the worst point."""

    paper: str
    claim: str
    place: str
    text: str
    table: str
    rung: str
    verdict: str
    reason: str
    counted: bool
    note: str = ""
    margin: float | None = None
    holds: int = 0  # points of the band at which the check holds
    points: int = 0
    compared: tuple[Compared, ...] = ()
    inputs: int | None = None  # that were tried, of a claim that is made for every one


def evaluate(paper_file: str | Path, tables_dir: str | Path) -> list[Verdict]:
    """Verdicts of all claims of a paper, one for each rung of each claim, in the order of the file."""
    paper = load(paper_file)
    folder = Path(tables_dir) / paper.meta.key
    tables = {claim.table: cells.read(folder / f"{claim.table}.csv") for claim in paper.claims}
    verdicts = []
    for claim in paper.claims:
        for rung in claim.rungs:
            with naming(paper_file, claim):
                verdicts.append(_verdict(paper, claim, rung, tables[claim.table]))
    return verdicts


def _verdict(paper: Paper, claim: Claim, rung: str, rows: list[Row] | None) -> Verdict:
    constructed = claim.by_construction and rung in COMPUTED
    claim_fields = (paper.meta.key, claim.id, claim.place, claim.text, claim.table, rung)
    changed = claim.changed(rung)
    note = " ".join(filter(None, (claim.why if constructed else None, changed, claim.note)))
    counted = not constructed and not changed
    table = Cells(paper, claim, rung, rows or [])
    point = ""
    left_out: list[str] = []
    truths: list[Truth] = []
    walks: list[Walk] = []
    try:
        if not table.rows:
            raise Missing(f"table {claim.table} {NOT_MADE}" if rows is None else f"{table.what} rows")
        Walk(table.note_labels).run(claim.check)
        band, left_out = table.points()
        for point in band:
            walks.append(Walk(partial(table.cell, point)))
            truths.append(walks[-1].run(claim.check))
    except Missing as missing:
        where = f" (where {point})" if point else ""
        return Verdict(*claim_fields, UNDECIDED, f"{missing}{where}", counted=counted, note=note)
    holds, points = sum(truth.margin >= 0 for truth in truths), len(truths)
    known = all(truth.known for truth in truths)
    of_band = f"holds at {holds} of {points} points of the assumed band" if points > 1 or left_out else ""
    inputs = sum(sum(walk.inputs.values()) for walk in walks) if claim.universal else None
    kind = _kind(claim, rung, holds, points, known)
    reasons = [of_band, *left_out] if known else [_not_known(table, truths), *left_out]
    if kind == UNCONTRADICTED:
        reasons.insert(0, f"in {inputs} inputs that were tried")
    if kind == UNDECIDED and known and claim.one_sided and rung == "simulated":
        reasons.append(claim.one_sided)
    worst = min(truths)
    reason, compared = "; ".join(filter(None, reasons)), _compared(worst, walks)
    return Verdict(*claim_fields, kind, reason, counted, note, worst.margin, holds, points, compared, inputs)


def _kind(claim: Claim, rung: str, holds: int, points: int, known: bool) -> str:
    """The kind of verdict if the check holds at so many points of the band."""
    everywhere = holds == points
    if not known or (claim.one_sided and rung == "simulated" and not everywhere):
        return UNDECIDED
    if claim.by_construction and rung in COMPUTED:
        return CONSTRUCTED if everywhere else BROKEN
    if holds and not everywhere and not claim.universal:
        return UNDECIDED
    if claim.changed(rung):
        return HOLDS_AS_CHANGED if everywhere else FAILS_AS_CHANGED
    if not everywhere:
        return REFUTED
    return UNCONTRADICTED if claim.universal else CONFIRMED


def _not_known(table: Cells, truths: Sequence[Truth]) -> str:
    """Why it is not known whether the check holds."""
    least, most = min(truth.least for truth in truths), min(truth.most for truth in truths)
    if table.unknown:
        return table.not_known()
    return f"within what was measured: a margin of {100 * least:+.1f} to {100 * most:+.1f} % over the 95 % intervals"


def _compared(worst: Truth, walks: list[Walk]) -> tuple[Compared, ...]:
    """Every comparison of the check over the band, the one that decides at the worst point first."""
    names = sorted(walks[0].sides, key=lambda name: name != worst.decides)
    sides = [(name, list(zip(*(walk.sides[name] for walk in walks), strict=True))) for name in names]
    return tuple(Compared(*name, (min(x), max(x)), (min(y), max(y))) for name, (x, y) in sides)

"""A claim as the pages show it: what it is held against, its value on each rung, the deviation and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradsync.claims import KINDS, REFUTED, STRENGTH, UNCONTRADICTED, UNDECIDED, Compared, Judged, Verdict
from gradsync.claims.by_claim import FAILS

RUNGS = (*reversed(STRENGTH),)  # weakest first, as the pages list them
SHORT = {
    **{kind: kind.split(",")[0].split(" although")[0] for kind in KINDS},
    UNCONTRADICTED: "no counterexample",
    UNDECIDED: "open",
}


class Value(NamedTuple):
    """What one rung says: both sides of the deciding comparison, the deviation of the first, the verdict."""

    rung: str
    verdict: Verdict
    left: str
    right: str
    deviation: str

    @property
    def margin(self) -> str:
        """How far the check is from turning over, in percent; empty if nothing was compared."""
        return "" if self.verdict.margin is None else f"{_signed(100 * self.verdict.margin)} %"


class Claimed(NamedTuple):
    """A claim with its values by rung; `kind` is the verdict of its strongest rung."""

    id: str
    paper: str
    place: str
    text: str
    table: str
    kind: str
    rung: str
    disagree: bool
    values: dict[str, Value]
    notes: tuple[str, ...]


def claimed(judged: Judged) -> Claimed:
    """What the pages show of a claim."""
    first = judged.verdicts[0]
    return Claimed(
        id=first.claim,
        paper=first.paper,
        place=first.place,
        text=first.text,
        table=first.table,
        kind=judged.kind,
        rung=judged.decided[0].rung if judged.decided else "",
        disagree=judged.disagree,
        values={verdict.rung: value(verdict) for verdict in judged.verdicts},
        notes=tuple(dict.fromkeys(" ".join(verdict.note.split()) for verdict in judged.verdicts if verdict.note)),
    )


def style(kind: str) -> str:
    """The class of a kind of verdict in the style sheet: good, bad, open, or nothing proven."""
    if kind == UNDECIDED:
        return "open"
    if kind in FAILS:
        return "bad" if kind == REFUTED else "void"
    return "good" if kind in KINDS[:3] else "void"


def value(verdict: Verdict) -> Value:
    """What the pages show of one rung."""
    if not verdict.compared:
        return Value(verdict.rung, verdict, "", "", "")
    decisive = verdict.compared[0]
    return Value(verdict.rung, verdict, _span(decisive.left), _span(decisive.right), _deviation(decisive))


def _span(ends: Sequence[float]) -> str:
    low, high = ends
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _deviation(compared: Compared) -> str:
    """How far the left side lies from a right side that is one number, in percent of it; empty if it is none."""
    (low, high), (right, other) = compared.left, compared.right
    if right != other or not right:
        return ""
    shares = sorted({_signed(100 * (left / right - 1)) for left in (low, high)}, key=float)
    return " to ".join(shares) + " %"


def _signed(percent: float) -> str:
    """With a sign, to a tenth; 0.0 has none."""
    return "0.0" if abs(percent) < 0.05 else f"{percent:+.{0 if abs(percent) >= 1000 else 1}f}"

"""The scoreboard: how many claims of each paper were decided, how and on which rung, and what would decide the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from gradsync.claims import CONFIRMED, REFUTED, UNCONTRADICTED, UNDECIDED, Judged, counts
from gradsync.claims.published import Paper
from gradsync.site.claimed import RUNGS

SHOWN = {"confirmed": CONFIRMED, "refuted": REFUTED, "no counterexample": UNCONTRADICTED}


class Score(NamedTuple):
    """The claims of one paper; `void` of them prove nothing. `rungs`: by which rung the decided ones were decided."""

    paper: Paper
    claims: int
    shown: dict[str, int]
    void: int
    undecided: int
    rungs: dict[str, int]

    @property
    def shares(self) -> list[tuple[str, float]]:
        """The parts of a bar as (class in the style sheet, percent)."""
        parts = zip(
            ("good", "bad", "good2", "void", "open"), (*self.shown.values(), self.void, self.undecided), strict=True
        )
        return [(name, 100 * number / self.claims) for name, number in parts if number]


def score(paper: Paper, judged: Sequence[Judged]) -> Score:
    """The score of a paper from its judged claims."""
    numbers = counts(judged)
    shown = {label: numbers[kind] for label, kind in SHOWN.items()}
    strongest = Counter(claim.decided[0].rung for claim in judged if claim.decided)
    return Score(
        paper=paper,
        claims=len(judged),
        shown=shown,
        void=len(judged) - sum(shown.values()) - numbers[UNDECIDED],
        undecided=numbers[UNDECIDED],
        rungs={rung: strongest[rung] for rung in RUNGS},
    )

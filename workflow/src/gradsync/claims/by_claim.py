"""Verdicts by claim: a claim is decided if any of its rungs decides it, and its strongest rung speaks for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gradsync.claims.verdicts import BROKEN, FAILS_AS_CHANGED, KINDS, REFUTED, UNDECIDED, Verdict

STRENGTH = ("measured", "emulated", "simulated", "derived")  # strongest first
FAILS = (REFUTED, BROKEN, FAILS_AS_CHANGED)


@dataclass(frozen=True)
class Judged:
    """A claim with the verdicts of all its rungs, in the order of the paper file."""

    verdicts: tuple[Verdict, ...]

    @property
    def paper(self) -> str:
        """Its paper's key."""
        return self.verdicts[0].paper

    @property
    def decided(self) -> list[Verdict]:
        """Verdicts of the rungs that decide the claim, strongest first: what is counted before what isn't."""
        decisive = [verdict for verdict in self.verdicts if verdict.verdict != UNDECIDED]
        return sorted(decisive, key=lambda verdict: (not verdict.counted, STRENGTH.index(verdict.rung)))

    @property
    def kind(self) -> str:
        """The verdict of its strongest rung."""
        return self.decided[0].verdict if self.decided else UNDECIDED

    @property
    def disagree(self) -> bool:
        """Whether it holds on one rung and fails on another."""
        return len({verdict.verdict in FAILS for verdict in self.decided}) > 1


def by_claim(verdicts: Sequence[Verdict]) -> list[Judged]:
    """The claims in the order of their first verdicts."""
    verdicts_of: dict[tuple[str, str], list[Verdict]] = {}
    for verdict in verdicts:
        verdicts_of.setdefault((verdict.paper, verdict.claim), []).append(verdict)
    return [Judged(tuple(claim_verdicts)) for claim_verdicts in verdicts_of.values()]


def counts(claims: Sequence[Judged]) -> dict[str, int]:
    """How many claims there are of each kind; kinds without a claim are there with 0."""
    numbers = Counter(claim.kind for claim in claims)
    return {kind: numbers[kind] for kind in KINDS}

"""Verdicts that are others than in an earlier ledger: each with what it was, or new, or gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gradsync.claims.verdicts import Verdict

ABSENT = "-"  # the verdict of a ledger that doesn't have the claim, or not on this rung


class Origin(NamedTuple):
    """When a ledger was made (ISO 8601, UTC), with which commit, for which configuration; empty if not known."""

    time: str = ""
    code: str = ""
    configuration: str = ""

    def __str__(self) -> str:
        return " by ".join(filter(None, (self.time, self.code))) or "a time that is not known"


class Change(NamedTuple):
    """A claim on one rung with its verdict in the earlier ledger and in the later one; `ABSENT` is none."""

    paper: str
    claim: str
    rung: str
    before: str
    now: str

    @property
    def kind(self) -> str:
        """`new`, `gone` or `changed`."""
        return "new" if self.before == ABSENT else "gone" if self.now == ABSENT else "changed"


class Changes(NamedTuple):
    """What changed since the ledger of `since`; the order is that of the later ledger, what is gone comes last."""

    since: Origin
    verdicts: tuple[Change, ...]


def changed(before: Sequence[Verdict], now: Sequence[Verdict]) -> tuple[Change, ...]:
    """Every claim and rung whose verdict is another one, and those that only one ledger has."""
    earlier, later = ({(each.paper, each.claim, each.rung): each.verdict for each in side} for side in (before, now))
    return tuple(
        Change(*key, earlier.get(key, ABSENT), later.get(key, ABSENT))
        for key in dict.fromkeys([*later, *earlier])
        if earlier.get(key) != later.get(key)
    )

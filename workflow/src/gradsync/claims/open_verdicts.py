"""Verdicts that decide nothing, in classes: why they don't, and what would."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from gradsync.claims.by_claim import STRENGTH
from gradsync.claims.remedies import Remedy
from gradsync.claims.verdicts import UNDECIDED, Verdict


class Open(NamedTuple):
    """Verdicts that are open for one reason and that one remedy would decide; code is written between backticks."""

    reason: str
    remedy: str
    verdicts: tuple[Verdict, ...]

    @property
    def claims(self) -> list[tuple[str, str]]:
        """Paper and id of each claim, once if several rungs are open for the same reason."""
        return list(dict.fromkeys((verdict.paper, verdict.claim) for verdict in self.verdicts))


def open_verdicts(verdicts: Iterable[Verdict], remedy: Callable[[Verdict], Remedy]) -> list[Open]:
    """The undecided ones of these verdicts by reason and remedy, those of the weakest rung first."""
    undecided = [verdict for verdict in verdicts if verdict.verdict == UNDECIDED]
    groups: dict[tuple[str, str], list[Verdict]] = {}
    added: dict[tuple[str, str], dict[str, None]] = {}
    for verdict in sorted(undecided, key=lambda verdict: -STRENGTH.index(verdict.rung)):
        reason, answer, add = remedy(verdict)
        groups.setdefault((reason, answer), []).append(verdict)
        added.setdefault((reason, answer), {}).update(dict.fromkeys(add))
    return [
        Open(reason, f"{answer}: {'; '.join(more)}" if (more := added[reason, answer]) else answer, tuple(group))
        for (reason, answer), group in groups.items()
    ]

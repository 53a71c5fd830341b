"""The claims ledger: what a paper says, checked over the result tables, with one verdict per rung."""

from gradsync.claims.by_claim import STRENGTH, Judged, by_claim, counts
from gradsync.claims.changes import Change, Changes, Origin, changed
from gradsync.claims.kept import keep
from gradsync.claims.ledger import VERSION, Ledger, ledger_json, load, read, summary
from gradsync.claims.open_verdicts import Open, open_verdicts
from gradsync.claims.page import page
from gradsync.claims.remedies import Remedies, Remedy
from gradsync.claims.verdicts import (
    BROKEN,
    CONFIRMED,
    CONSTRUCTED,
    FAILS_AS_CHANGED,
    HOLDS_AS_CHANGED,
    KINDS,
    REFUTED,
    UNCONTRADICTED,
    UNDECIDED,
    Compared,
    Verdict,
    evaluate,
)

__all__ = [
    "BROKEN",
    "CONFIRMED",
    "CONSTRUCTED",
    "FAILS_AS_CHANGED",
    "HOLDS_AS_CHANGED",
    "KINDS",
    "REFUTED",
    "STRENGTH",
    "UNCONTRADICTED",
    "UNDECIDED",
    "VERSION",
    "Change",
    "Changes",
    "Compared",
    "Judged",
    "Ledger",
    "Open",
    "Origin",
    "Remedies",
    "Remedy",
    "Verdict",
    "by_claim",
    "changed",
    "counts",
    "evaluate",
    "keep",
    "ledger_json",
    "load",
    "open_verdicts",
    "page",
    "read",
    "summary",
]

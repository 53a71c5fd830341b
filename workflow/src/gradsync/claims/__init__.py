"""The claims ledger: what a paper says, checked over the result tables, with one verdict a rung."""

from gradsync.claims.ledger import VERSION, ledger_json, ledger_markdown, summary
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
    "UNCONTRADICTED",
    "UNDECIDED",
    "VERSION",
    "Compared",
    "Verdict",
    "evaluate",
    "ledger_json",
    "ledger_markdown",
    "summary",
]

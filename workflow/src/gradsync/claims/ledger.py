"""The ledger: verdicts as JSON for programs, one for each rung of each claim."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from gradsync.claims.verdicts import KINDS, Verdict

VERSION = 2


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
    return {kind: times[kind] for kind in KINDS}

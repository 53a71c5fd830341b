"""The ledger: verdicts as JSON for programs, one for each rung of each claim."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gradsync.claims.verdicts import KINDS, Verdict
from gradsync.errors import InputError
from gradsync.files import reading

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


def read(path: Path) -> list[Verdict]:
    """The verdicts of a written ledger; raises InputError if it is missing, no ledger, or one of another version."""
    ledger = reading.json_of(path, "ledger")
    if not isinstance(ledger, dict) or ledger.get("version") != VERSION:
        raise InputError(f"ledger {path}: not of version {VERSION}: run gradsync claims again")
    try:
        return TypeAdapter(list[Verdict]).validate_python(ledger.get("verdicts"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"ledger {path}: verdicts {where}: {first['msg']}: run gradsync claims again") from None


def summary(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts of each kind."""
    times = Counter(verdict.verdict for verdict in verdicts)
    return {kind: times[kind] for kind in KINDS}

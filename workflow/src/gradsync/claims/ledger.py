"""The ledger: verdicts as JSON for programs, one for each rung of each claim, and what changed since the run before."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from gradsync.claims.changes import Changes, Origin
from gradsync.claims.verdicts import KINDS, Verdict
from gradsync.errors import InputError
from gradsync.files import reading

VERSION = 2


class Ledger(NamedTuple):
    """A written ledger: its verdicts, when and with which code it was made, and what changed since the run before."""

    verdicts: list[Verdict]
    origin: Origin
    changes: Changes | None


def ledger_json(verdicts: Sequence[Verdict], origin: Origin | None = None, changes: Changes | None = None) -> str:
    """The ledger as versioned JSON."""
    ledger: dict[str, Any] = {
        "version": VERSION,
        "made": (origin or Origin())._asdict(),
        "summary": summary(verdicts),
        "changes": None
        if changes is None
        else {"since": changes.since._asdict(), "verdicts": [change._asdict() for change in changes.verdicts]},
        "verdicts": [
            {**asdict(verdict), "compared": [item._asdict() for item in verdict.compared]} for verdict in verdicts
        ],
    }
    return json.dumps(ledger, indent=1, allow_nan=False) + "\n"


def read(path: Path) -> list[Verdict]:
    """The verdicts of a written ledger; raises InputError if it is missing, no ledger, or one of another version."""
    return load(path).verdicts


def load(path: Path) -> Ledger:
    """As `read`, with when and how it was made and what had changed."""
    ledger = reading.json_of(path, "ledger")
    if not isinstance(ledger, dict) or ledger.get("version") != VERSION:
        raise InputError(f"ledger {path}: not of version {VERSION}: run gradsync claims again")
    changes = ledger.get("changes")
    return Ledger(
        _validated(path, "verdicts", list[Verdict], ledger.get("verdicts")),
        _validated(path, "made", Origin, ledger.get("made") or {}),
        _validated(path, "changes", Changes, changes) if changes is not None else None,
    )


def _validated(path: Path, key: str, kind: Any, content: Any) -> Any:
    try:
        return TypeAdapter(kind).validate_python(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"ledger {path}: {key} {where}: {first['msg']}: run gradsync claims again") from None


def summary(verdicts: Sequence[Verdict]) -> dict[str, int]:
    """How many verdicts of each kind."""
    times = Counter(verdict.verdict for verdict in verdicts)
    return {kind: times[kind] for kind in KINDS}

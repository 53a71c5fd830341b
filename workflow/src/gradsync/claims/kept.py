"""The ledgers that stay when claims are decided again: the last one that was written, and that of the run before.

Snakemake deletes what a job makes before the job runs again, so that they lie in a folder of their own, which no rule
names: `ledgers/latest.json` and `ledgers/before.json`, below the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gradsync.claims import ledger
from gradsync.claims.changes import Changes, Origin, changed
from gradsync.claims.verdicts import Verdict
from gradsync.errors import InputError
from gradsync.files.writing import write_whole

FOLDER, LATEST, BEFORE = "ledgers", "latest.json", "before.json"


def keep(results: Path, verdicts: Sequence[Verdict], origin: Origin) -> Changes | None:
    """Keep these verdicts, and return what changed since the run before; None if there was none that can be read.

    The same verdicts on the same values are no run of their own: what they are compared with stays.
    """
    folder = results / FOLDER
    latest, before = _kept(folder / LATEST), _kept(folder / BEFORE)
    if latest is not None and latest.verdicts != [*verdicts]:
        before = latest
        write_whole(folder / BEFORE, ledger.ledger_json(latest.verdicts, latest.origin))
    write_whole(folder / LATEST, ledger.ledger_json(verdicts, origin))
    return None if before is None else Changes(before.origin, changed(before.verdicts, verdicts))


def _kept(path: Path) -> ledger.Ledger | None:
    """The kept ledger; None if there is none, or one that this gradsync can't read."""
    try:
        return ledger.load(path) if path.is_file() else None
    except InputError:
        return None

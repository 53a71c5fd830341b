"""Columns of the tables that have a row a scheme, and how they are read again."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.errors import InputError

TEXTS = ["rung", "model", "scheme", "assumption", "note"]
TABLE = [*TEXTS, "nodes", "iteration_seconds"]  # columns of every table that has a row a scheme
NUMBERS = ["iteration_seconds", "exposed_communication_seconds", "speedup", "efficiency"]
COLUMNS = ["rung", "model", "nodes", "scheme", "assumption", *NUMBERS, "note"]


def read(path: Path) -> pd.DataFrame:
    """A table that was written; raises InputError where it is missing or another file."""
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(TEXTS, str))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read: {str(error).strip()}: make that table first") from None
    missing = [column for column in TABLE if column not in frame.columns]
    if missing:
        raise InputError(f"{path}: not this table: no column {', '.join(missing)}: delete it and make it again")
    return frame.fillna(dict.fromkeys(TEXTS, ""))

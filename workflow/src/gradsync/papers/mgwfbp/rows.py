"""Columns of the tables that have a row a scheme, and how tables are read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from gradsync.errors import InputError

TEXTS = ["rung", "model", "scheme", "assumption", "source", "tensor", "note"]
TABLE = ["rung", "model", "scheme", "assumption", "note", "nodes", "iteration_seconds"]  # of every such table
NUMBERS = ["iteration_seconds", "exposed_communication_seconds", "speedup", "efficiency"]
COLUMNS = ["rung", "model", "nodes", "scheme", "assumption", *NUMBERS, "note"]


def read(path: Path, columns: Sequence[str] = TABLE) -> pd.DataFrame:
    """A table that was written; raises InputError where it is missing or lacks one of these columns."""
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(TEXTS, str))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read: {str(error).strip()}: make that table first") from None
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"{path}: not this table: no column {', '.join(missing)}: delete it and make it again")
    return frame.fillna(dict.fromkeys(TEXTS, ""))

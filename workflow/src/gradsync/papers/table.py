"""A table of a paper, and how a written table is read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from gradsync.errors import InputError

# Columns that hold words in every table that has them: an empty cell is an empty word.
TEXTS = ["rung", "model", "scheme", "assumption", "source", "tensor", "launch", "reference", "note"]
# Columns of every table that has a row per scheme.
BY_SCHEME = ["rung", "model", "scheme", "assumption", "note", "nodes", "iteration_seconds"]


class Table(NamedTuple):
    """`frame` has every row (long form, read by claims and figures), `display` is what people read, under `caption`.

    `more`: further parts that stand below if one table would be too wide, each under a caption of its own.
    """

    frame: pd.DataFrame
    display: pd.DataFrame
    caption: str
    more: tuple[tuple[str, pd.DataFrame], ...] = ()


def file(results: Path, paper: str, name: str) -> Path:
    """The path below `results` of the file with every row of a table."""
    return results / "tables" / paper / f"{name}.csv"


def read(path: Path, columns: Sequence[str] = BY_SCHEME) -> pd.DataFrame:
    """The rows of a written table; raises InputError if it is missing or lacks one of these columns."""
    try:
        frame = pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=dict.fromkeys(TEXTS, str))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: can't be read: {str(error).strip()}: make that table first") from None
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError(f"{path}: not this table: no column {', '.join(missing)}: delete it and make it again")
    return frame.fillna(dict.fromkeys(TEXTS, ""))

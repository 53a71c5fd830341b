"""Contenders of one launch as a reader compares them: the fastest first, and what differs from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from gradsync.papers.labels import REFERENCES
from gradsync.papers.repeats import paired
from gradsync.statistics.intervals import median_interval, shown

FASTEST, SLOWER, ALIKE, UNKNOWN = "fastest", "slower", "not told apart", "too few repeats"


def ranked(launch: pd.DataFrame) -> pd.DataFrame:
    """The rows of a launch, the fastest first and references last."""
    return launch.sort_values(
        ["scheme", "iteration_seconds"],
        key=lambda cells: cells.isin(REFERENCES.keys()) if cells.name == "scheme" else cells,
        kind="stable",
    )


def over_fastest(row: Any, launch: pd.DataFrame) -> tuple[str, str]:
    """(ratio, word): iteration time over that of the fastest contender, block by block, and what its interval says."""
    first = ranked(launch).iloc[0]
    if row.scheme in REFERENCES or first.scheme in REFERENCES:
        return "-", "-"
    if row.scheme == first.scheme:
        return "1", FASTEST
    ratios = paired(np.divide, row, first, "iteration_seconds")
    low, middle, high = median_interval(ratios)
    if low is None:
        return shown((row.iteration_seconds / first.iteration_seconds, None, None), ".3f"), UNKNOWN
    return shown((middle, low, high), ".3f"), SLOWER if low > 1 else ALIKE

"""A table of two runs, row by row: what no timing explains, and how far apart its simulated numbers are.

A row that was timed has other numbers in every run. Which such rows there are, and which of them have numbers at all,
is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from gradsync.claims.cells import Row
from gradsync.files.results import TIMED
from gradsync.publication.timed import timed

FIXED = ("published", "derived")  # rungs whose numbers nothing on this machine changes
# columns that say what a row is about; a launch that was chosen for its times is none of them
SUBJECT = (
    *("rung", "model", "scheme", "source", "nodes", "workers", "parts", "batch", "batch_here", "data", "dataset"),
    *("network", "topology", "loader", "elements", "density", "level", "epoch"),
)


def compare_tables(first: Sequence[Row], second: Sequence[Row]) -> tuple[str, float]:
    """(the first difference that nothing explains, or empty; the largest relative one of simulated numbers)."""
    kept = [[row for row in rows if row.get("rung", "simulated") not in TIMED] for rows in (first, second)]
    largest = 0.0
    for number, (one, other) in enumerate(zip_longest(*kept), 1):
        if one is None or other is None:
            return f"{len(kept[0])} and {len(kept[1])} rows that were not timed", largest
        for column in dict.fromkeys([*one, *other]):
            pair = one.get(column, ""), other.get(column, "")
            if pair[0] == pair[1]:
                continue
            if one.get("rung") in FIXED or column in SUBJECT:
                return f"row {number}, {column}: {pair[0]} and {pair[1]}", largest
            largest = max(largest, _relative(*pair))
    return _other_subjects(first, second), largest


def _other_subjects(first: Sequence[Row], second: Sequence[Row]) -> str:
    """What one table has more timed rows of than the other; empty if nothing."""
    one, other = _subjects(first), _subjects(second)
    for subject in dict.fromkeys([*one, *other]):
        if one[subject] != other[subject]:
            return f"{one[subject]} and {other[subject]} rows of {subject}"
    return ""


def _subjects(rows: Sequence[Row]) -> Counter[str]:
    """How many timed rows there are of each subject, in words."""
    with_numbers = timed(rows)
    known = {id(row) for row in with_numbers}
    without = [row for row in rows if row.get("rung") in TIMED and id(row) not in known]
    return Counter([*_in_words(with_numbers, ""), *_in_words(without, ", without numbers")])


def _in_words(rows: Iterable[Row], end: str) -> list[str]:
    return [", ".join(f"{column} {row[column]}" for column in SUBJECT if row.get(column)) + end for row in rows]


def _relative(one: str, other: str) -> float:
    """The relative difference of two cells; infinite if they are no numbers."""
    try:
        numbers = float(one), float(other)
    except ValueError:
        return math.inf
    scale = max(map(abs, numbers))
    return abs(numbers[0] - numbers[1]) / scale if scale else 0.0

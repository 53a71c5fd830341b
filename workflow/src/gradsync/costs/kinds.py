"""Measured costs of other kinds of messages than all-reduces of all ranks, beside these in one file of points.

The column `kind` of such a file is empty, or a kind (`reduce_scatter`), or a kind between the groups of an axis of so
many places (`all_reduce@local:4`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from gradsync.costs import MessageCost, fitted
from gradsync.costs.half import HALVES
from gradsync.files import reading


def over(kind: str, axis: str, places: int) -> str:
    """The name of a kind between groups of an axis."""
    return f"{kind}@{axis}:{places}"


def measured(path: str | Path, ranks: int, places: Mapping[str, int] | None = None) -> dict[str, MessageCost]:
    """The fits of a file by key of a network: of all ranks, and of axes that have as many `places` (name -> number).

    Raises InputError that names the file if the points of a kind can't be fitted, or are of other numbers of ranks.
    """
    lines = (line for line in io.StringIO(reading.text(path, "points"), newline="") if not line.startswith("#"))
    kinds = sorted({row.get("kind") or "" for row in csv.DictReader(lines)} - {""})
    costs: dict[str, MessageCost] = {}
    for kind in kinds:
        key, _, of_places = kind.partition(":")
        axis = key.partition("@")[2]
        if axis and str((places or {}).get(axis)) != of_places:
            continue
        costs[key] = fitted.fit(*fitted.load_points(path, ranks, kind=kind), source=f"{path}, {kind}")
    return costs


def halves(path: str | Path, ranks: int) -> dict[str, MessageCost]:
    """The measured ones of a reduce-scatter and an all-gather between all ranks; raises as `measured` does."""
    return {kind: cost for kind, cost in measured(path, ranks).items() if kind in HALVES}

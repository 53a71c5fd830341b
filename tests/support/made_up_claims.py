"""A paper file with one claim and a table of a few rows, made up, and the verdict on them."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import yaml

from gradsync import claims
from gradsync.papers.repeats import cells
from made_up_repeats import MOMENTS

COLUMNS = ("rung", "model", "nodes", "scheme", "assumption", "iteration_seconds", "efficiency", "note")
MEASURED = (*COLUMNS, "launch", "repeats", *(f"iteration_seconds{end}" for end in ("_low", "_high", "_samples")))
SCHEMES = {"wfbp": "wfbp", "synceasgd": "single", "tf_ps": None}
FASTER = 'iter_time("wfbp", "net", 4) < iter_time("synceasgd", "net", 4)'


def write_paper(tmp_path: Path, check: str = FASTER, exact: dict | None = None, **claim: object) -> Path:
    entry = {
        "id": "c",
        "place": "Fig. 1",
        "text": "a | b",
        "table": "t",
        "check": check,
        "rungs": ["simulated"],
        **claim,
    }
    content = {
        "version": 1,
        "exact": exact or {},
        "meta": {"key": "p", "nickname": "P", "title": "T", "authors": ["A"], "venue": "V"},
        "schemes": SCHEMES,
        "claims": [entry],
    }
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def write_table(tmp_path: Path, *rows: dict, columns: tuple[str, ...] = COLUMNS) -> None:
    (tmp_path / "p").mkdir(exist_ok=True)
    with (tmp_path / "p" / "t.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        writer.writerows({"rung": "simulated", "model": "net", "nodes": 4, **row} for row in rows)


def two_rows(wfbp: object, single: object, **more: object) -> list[dict]:
    return [
        {"scheme": "wfbp", "iteration_seconds": wfbp, **more},
        {"scheme": "single", "iteration_seconds": single, **more},
    ]


def repeated_rows(
    wfbp: float, single: float, *, launch: str = "net-4", moments: tuple = MOMENTS, **more: object
) -> list:
    """Both with their repeats, the same moments slow for both."""
    return [
        row | {"launch": launch, "repeats": len(moments), **cells("iteration_seconds", np.multiply(seconds, moments))}
        for row, seconds in zip(two_rows(wfbp, single, **more), (wfbp, single), strict=True)
    ]


def band_rows(*pairs: tuple[object, object]) -> list[dict]:
    return [row for i, (x, y) in enumerate(pairs) for row in two_rows(x, y, assumption=f"b={i}")]


def verdict_of(path: Path, tmp_path: Path) -> claims.Verdict:
    (only,) = claims.evaluate(path, tmp_path)
    return only

"""MG-WFBP (Shi, Chu, Li; INFOCOM 2019): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.papers.mgwfbp.examples import table2, timelines
from gradsync.papers.mgwfbp.scaling import fig9a, fig9b, gap
from gradsync.papers.mgwfbp.training import training
from gradsync.papers.table import Table
from gradsync.settings import Settings

TABLES: dict[str, Callable[[Settings, Path], Table]] = {
    "table2": table2,
    "timelines": timelines,
    "fig9a": fig9a,
    "fig9b": fig9b,
    "gap": gap,
    "training": training,
}

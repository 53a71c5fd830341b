"""ASC-WFBP (Shi, Chu, Li; INFOCOM 2021): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.papers.ascwfbp.bounds import constants, fig6, table5
from gradsync.papers.ascwfbp.communication import contention_points, fig4a, fig4b, fig5
from gradsync.papers.ascwfbp.examples import timelines
from gradsync.papers.ascwfbp.iterations import table4
from gradsync.papers.ascwfbp.models import table3
from gradsync.papers.ascwfbp.own_gap import own_model_table, shared_link
from gradsync.papers.emulated import emulated
from gradsync.papers.slowdown import slowdown
from gradsync.papers.table import Table
from gradsync.papers.training import training
from gradsync.settings import Settings

TABLES: dict[str, Callable[[Settings, Path], Table]] = {
    "table3": table3,
    "timelines": timelines,
    "fig4a": fig4a,
    "fig4b": fig4b,
    "fig5": fig5,
    "contention_points": contention_points,
    "constants": constants,
    "table4": table4,
    "fig6": fig6,
    "table5": table5,
    "own_model": own_model_table,
    "shared_link": shared_link,
    "emulated": partial(emulated, "ascwfbp"),
    "training": partial(training, "ascwfbp"),
    "slowdown": partial(slowdown, "ascwfbp"),
}

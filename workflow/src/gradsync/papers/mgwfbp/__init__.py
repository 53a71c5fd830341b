"""MG-WFBP (Shi, Chu, Li; INFOCOM 2019): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.papers.emulated import emulated
from gradsync.papers.mgwfbp.allreduce_times import fig5b, fig5b_points
from gradsync.papers.mgwfbp.convergence import fig6b, fig7b
from gradsync.papers.mgwfbp.examples import table2, timelines
from gradsync.papers.mgwfbp.gradient_sizes import fig5a, fig5a_tensors
from gradsync.papers.mgwfbp.scaling import fig9a, fig9b, gap
from gradsync.papers.mgwfbp.speedups import fig6, fig7, fig8
from gradsync.papers.slowdown import slowdown
from gradsync.papers.table import Table
from gradsync.papers.training import training
from gradsync.settings import Settings

TABLES: dict[str, Callable[[Settings, Path], Table]] = {
    "table2": table2,
    "timelines": timelines,
    "fig5a": fig5a,
    "fig5a_tensors": fig5a_tensors,
    "fig5b": fig5b,
    "fig5b_points": fig5b_points,
    "fig6": fig6,
    "fig6b": fig6b,
    "fig7": fig7,
    "fig7b": fig7b,
    "fig8": fig8,
    "fig9a": fig9a,
    "fig9b": fig9b,
    "gap": gap,
    "emulated": partial(emulated, "mgwfbp"),
    "training": partial(training, "mgwfbp"),
    "slowdown": partial(slowdown, "mgwfbp"),
}

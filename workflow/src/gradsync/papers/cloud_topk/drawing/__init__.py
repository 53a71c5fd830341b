"""Figures of the public-cloud top-k paper (Shi et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.drawing.aggregation import fig7, fig8
from gradsync.papers.cloud_topk.drawing.complexity import complexity
from gradsync.papers.cloud_topk.drawing.convergence import fig10
from gradsync.papers.cloud_topk.drawing.data_cache import fig9
from gradsync.papers.cloud_topk.drawing.iterations import fig1, table3, table4
from gradsync.papers.cloud_topk.drawing.pto import pto
from gradsync.papers.cloud_topk.drawing.runs import table5
from gradsync.papers.cloud_topk.drawing.selection_times import fig6
from gradsync.papers.drawn_emulated import emulated

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "complexity": complexity,
    "fig1": fig1,
    "fig6": fig6,
    "fig7": fig7,
    "fig8": fig8,
    "fig9": fig9,
    "fig10": fig10,
    "table3": table3,
    "table4": table4,
    "table5": table5,
    "pto": pto,
    "emulated": partial(emulated, "cloud_topk"),
}

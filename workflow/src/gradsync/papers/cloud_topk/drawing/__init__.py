"""Figures of the public-cloud top-k paper (Shi et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.drawing.complexity import complexity
from gradsync.papers.cloud_topk.drawing.convergence import fig10
from gradsync.papers.cloud_topk.drawing.data_cache import fig9
from gradsync.papers.cloud_topk.drawing.runs import table5
from gradsync.papers.cloud_topk.drawing.selection_times import fig6

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "complexity": complexity,
    "fig6": fig6,
    "fig9": fig9,
    "fig10": fig10,
    "table5": table5,
}

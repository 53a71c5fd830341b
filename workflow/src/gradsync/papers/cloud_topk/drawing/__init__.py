"""Figures of the public-cloud top-k paper (Shi et al., 2020)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.cloud_topk.drawing.complexity import complexity
from gradsync.papers.cloud_topk.drawing.pto import pto
from gradsync.papers.cloud_topk.drawing.runs import table5

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {"complexity": complexity, "table5": table5, "pto": pto}

"""Figures of the DeAR paper's table (Zhang et al.; ICDCS 2023)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.dear.drawing.overlap import overlap
from gradsync.papers.dear.drawing.timelines import timelines

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {"overlap": overlap, "timelines": timelines}

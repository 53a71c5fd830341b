"""Figures of the EASGD and KNL paper (You, Buluc, Demmel; SC17)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.drawing.layout import fig10
from gradsync.papers.easgd_knl.drawing.partition import fig12
from gradsync.papers.easgd_knl.drawing.scaling import table4

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {"fig10": fig10, "fig12": fig12, "table4": table4}

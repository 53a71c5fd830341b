"""Figures of the EASGD and KNL paper (You, Buluc, Demmel; SC17)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.easgd_knl.drawing.error_curves import fig6, fig8, fig13
from gradsync.papers.easgd_knl.drawing.layout import fig10
from gradsync.papers.easgd_knl.drawing.partition import fig12
from gradsync.papers.easgd_knl.drawing.scaling import table4
from gradsync.papers.easgd_knl.drawing.time_parts import fig11

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "fig6": fig6,
    "fig8": fig8,
    "fig10": fig10,
    "fig11": fig11,
    "fig12": fig12,
    "fig13": fig13,
    "table4": table4,
}

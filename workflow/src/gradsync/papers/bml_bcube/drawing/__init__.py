"""Figures of the BML paper (Wang et al.; NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.bml_bcube.drawing.completion import jobs
from gradsync.papers.bml_bcube.drawing.states import fig4
from gradsync.papers.bml_bcube.drawing.synchronisation import fig5
from gradsync.papers.drawn_emulated import emulated
from gradsync.papers.drawn_training import training

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "fig4": fig4,
    "fig5": fig5,
    "fig6": jobs("fig6", "Fig. 6", "lenet5"),
    "fig7": jobs("fig7", "Fig. 7", "vgg19"),
    "emulated": partial(emulated, "bml_bcube"),
    "training": partial(training, "bml_bcube"),
}

"""Figures of the BML paper (Wang et al.; NeurIPS 2018)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.render.bml_bcube.completion import jobs
from gradsync.render.bml_bcube.states import fig4
from gradsync.render.bml_bcube.synchronisation import fig5
from gradsync.render.emulated import emulated
from gradsync.render.style import Drawn
from gradsync.render.training import training
from gradsync.settings import Settings

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "fig4": fig4,
    "fig5": fig5,
    "fig6": jobs("fig6", "Fig. 6", "lenet5"),
    "fig7": jobs("fig7", "Fig. 7", "vgg19"),
    "emulated": partial(emulated, "bml_bcube"),
    "training": partial(training, "bml_bcube"),
}

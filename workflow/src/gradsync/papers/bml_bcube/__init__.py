"""BML (Wang et al.; NeurIPS 2018): what its tables and figures need."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.papers.bml_bcube.completion import fig6, fig7
from gradsync.papers.bml_bcube.equipment import switches
from gradsync.papers.bml_bcube.states import fig4, fig4_steps
from gradsync.papers.bml_bcube.synchronisation import fig5
from gradsync.papers.emulated import emulated
from gradsync.papers.table import Table
from gradsync.papers.training import training
from gradsync.settings import Settings

TABLES: dict[str, Callable[[Settings, Path], Table]] = {
    "fig4": fig4,
    "fig4_steps": fig4_steps,
    "fig5": fig5,
    "switches": switches,
    "fig6": fig6,
    "fig7": fig7,
    "emulated": partial(emulated, "bml_bcube"),
    "training": partial(training, "bml_bcube"),
}

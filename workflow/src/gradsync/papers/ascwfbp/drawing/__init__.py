"""Figures of the ASC-WFBP paper (Shi, Chu, Li; INFOCOM 2021)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.ascwfbp.drawing.communication import fig4a, fig4b, fig5
from gradsync.papers.ascwfbp.drawing.examples import timelines
from gradsync.papers.ascwfbp.drawing.iterations import fig6, shared_link, table4
from gradsync.papers.ascwfbp.examples import ASC, MERGED, SIMULTANEOUS, WFBP
from gradsync.papers.drawn_emulated import emulated
from gradsync.papers.drawn_training import training

SCHEDULES = {WFBP: "WFBP", MERGED: "merged gradients", SIMULTANEOUS: "two-way simultaneous"}

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "fig1": timelines("fig1", SCHEDULES),
    "fig2": timelines(
        "fig2", {"sequential": "(a) one after the other", "full": "(b) at once", "half": "(c) partly at once"}
    ),
    "fig3": timelines("fig3", SCHEDULES),
    "counterexample": timelines("counterexample", {ASC: "Theorem 1: merged", SIMULTANEOUS: "simultaneous"}),
    "fig4a": fig4a,
    "fig4b": fig4b,
    "fig5": fig5,
    "table4": table4,
    "fig6": fig6,
    "shared_link": shared_link,
    "emulated": partial(emulated, "ascwfbp"),
    "training": partial(training, "ascwfbp"),
}

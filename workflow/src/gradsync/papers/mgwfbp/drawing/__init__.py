"""Figures of the MG-WFBP paper (Shi, Chu, Li; INFOCOM 2019)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from gradsync.configuration.settings import Settings
from gradsync.drawing.style import Drawn
from gradsync.papers.drawn_emulated import emulated
from gradsync.papers.drawn_training import training
from gradsync.papers.mgwfbp.drawing import evaluation
from gradsync.papers.mgwfbp.drawing.examples import timelines
from gradsync.papers.mgwfbp.drawing.scaling import fig9, gap

FIGURES: dict[str, Callable[[Settings, Path], Drawn]] = {
    "fig1": timelines(("naive S-SGD", "case3", "naive")),
    "fig2": timelines(("WFBP", "case3", "wfbp")),
    "fig3": timelines(
        ("Case 1, all hidden", "case1", "wfbp"),
        ("Case 2, backlog drains", "case2", "wfbp"),
        ("Case 3, backlog stays", "case3", "wfbp"),
    ),
    "fig4": timelines(("WFBP", "case3", "wfbp"), ("MG-WFBP, layers 4 and 3 merged", "case3", "mgwfbp")),
    "counterexample": timelines(
        ("Algorithm 1", "counterexample", "mgwfbp"), ("exact optimum", "counterexample", "optimal")
    ),
    "fig5a": evaluation.fig5a,
    "fig5b": evaluation.fig5b,
    "fig6": evaluation.speedup("fig6", "Fig. 6"),
    "fig7": evaluation.speedup("fig7", "Fig. 7"),
    "fig8": evaluation.fig8,
    "fig9a": fig9("fig9a", "Fig. 9(a) GoogLeNet"),
    "fig9b": fig9("fig9b", "Fig. 9(b) ResNet-50"),
    "gap": gap,
    "emulated": partial(emulated, "mgwfbp"),
    "training": partial(training, "mgwfbp"),
}

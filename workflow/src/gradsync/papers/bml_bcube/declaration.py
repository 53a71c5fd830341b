"""BML (Wang et al.; NeurIPS 2018): its tables and figures, and what they are made from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gradsync.papers.bml_bcube.completion import fig6, fig7
from gradsync.papers.bml_bcube.equipment import switches
from gradsync.papers.bml_bcube.states import fig4, fig4_steps
from gradsync.papers.bml_bcube.synchronisation import fig5
from gradsync.papers.declaration import Paper, counted, emulated_runs, figure, kept, table, testbed, trained
from gradsync.papers.emulated import emulated
from gradsync.papers.training import training

PAPER = Paper(
    quick_seconds=70,
    printed=("fig4", "fig5", "fig6", "fig7"),
    inputs=(testbed,),
    replayed=(testbed, counted("lenet5", "vgg19")),
    tables={
        "fig4": table(fig4, kept(Path("config/papers/bml_bcube/fig4.csv"))),
        "fig4_steps": table(fig4_steps),
        "fig5": table(fig5),
        "switches": table(switches),
        "fig6": table(fig6, counted("lenet5"), trained("lenet5"), emulated_runs),
        "fig7": table(fig7, counted("vgg19"), trained("vgg19", "vgg19_eighth"), emulated_runs),
        "emulated": table(partial(emulated, "bml_bcube"), emulated_runs),
        "training": table(partial(training, "bml_bcube"), trained()),
    },
    figures={
        "fig4": figure("fig4", "fig4_steps"),
        "fig5": figure("fig5"),
        "fig6": figure("fig6"),
        "fig7": figure("fig7"),
        "emulated": figure("emulated", of=emulated_runs),
        "training": figure("training", of=trained()),
    },
)

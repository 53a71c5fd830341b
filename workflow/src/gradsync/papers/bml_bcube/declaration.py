"""BML (Wang et al.; NeurIPS 2018): its tables and figures, and what they are made from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gradsync.papers.bml_bcube.completion import fig6, fig7
from gradsync.papers.bml_bcube.equipment import switches
from gradsync.papers.bml_bcube.states import fig4, fig4_steps
from gradsync.papers.bml_bcube.synchronisation import fig5
from gradsync.papers.declaration import Paper, counted, drawn, emulated_runs, kept, made, testbed, trained
from gradsync.papers.emulated import emulated
from gradsync.papers.training import training

PAPER = Paper(
    quick_seconds=60,
    inputs=(testbed,),
    replayed=(testbed, counted("lenet5", "vgg19")),
    tables={
        "fig4": made(fig4, kept(Path("config/papers/bml_bcube/fig4.csv"))),
        "fig4_steps": made(fig4_steps),
        "fig5": made(fig5),
        "switches": made(switches),
        "fig6": made(fig6, counted("lenet5"), trained("lenet5"), emulated_runs),
        "fig7": made(fig7, counted("vgg19"), trained("vgg19", "vgg19_eighth"), emulated_runs),
        "emulated": made(partial(emulated, "bml_bcube"), emulated_runs),
        "training": made(partial(training, "bml_bcube"), trained()),
    },
    figures={
        "fig4": drawn("fig4", "fig4_steps"),
        "fig5": drawn("fig5"),
        "fig6": drawn("fig6"),
        "fig7": drawn("fig7"),
        "emulated": drawn("emulated", of=emulated_runs),
        "training": drawn("training", of=trained()),
    },
)

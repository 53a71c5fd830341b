"""MG-WFBP (Shi, Chu, Li; INFOCOM 2019): its tables and figures, and what they are made from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from gradsync.measure import carried
from gradsync.papers.declaration import (
    Paper,
    Place,
    emulated_runs,
    figure,
    interference,
    kept,
    network,
    profile,
    table,
    testbed,
    trained,
)
from gradsync.papers.emulated import emulated
from gradsync.papers.interference import interference_table
from gradsync.papers.mgwfbp import examples
from gradsync.papers.mgwfbp.allreduce_times import fig5b, fig5b_points
from gradsync.papers.mgwfbp.convergence import fig6b, fig7b
from gradsync.papers.mgwfbp.examples import table2, timelines
from gradsync.papers.mgwfbp.gradient_sizes import fig5a, fig5a_tensors
from gradsync.papers.mgwfbp.scaling import fig9a, fig9b, gap
from gradsync.papers.mgwfbp.speedups import fig6, fig7, fig8
from gradsync.papers.training import training

EXAMPLES = kept(*examples.FILES)


def logged(_: Place) -> tuple[Path, ...]:
    """What was carried over from the authors' logs."""
    return carried.LAYERS, carried.ALLREDUCES


PAPER = Paper(
    quick_seconds=270,
    printed=("fig1", "fig2", "table2", "fig3", "fig4", "fig5", "fig6", "fig7", "fig8", "fig9"),
    inputs=(testbed,),
    replayed=(testbed, logged, profile("resnet50")),
    tables={
        "table2": table(table2),
        "timelines": table(timelines, EXAMPLES),
        "fig5a": table(fig5a, profile("googlenet", "resnet50")),
        "fig5a_tensors": table(fig5a_tensors, profile("googlenet", "resnet50")),
        "fig5b": table(fig5b, logged, network, emulated_runs),
        "fig5b_points": table(fig5b_points, logged, network, emulated_runs),
        "fig6": table(fig6, logged, trained("googlenet"), emulated_runs),
        "fig6b": table(fig6b, trained("googlenet")),
        "fig7": table(fig7, logged, profile("resnet50"), trained("resnet50"), emulated_runs),
        "fig7b": table(fig7b, trained("resnet50")),
        "fig8": table(fig8, tables=("fig6", "fig7")),
        "fig9a": table(fig9a, tables=("gap",)),
        "fig9b": table(fig9b, tables=("gap",)),
        "gap": table(gap, logged, profile("resnet50")),
        "emulated": table(partial(emulated, "mgwfbp"), emulated_runs),
        "training": table(partial(training, "mgwfbp"), trained()),
        "slowdown": table(partial(interference_table, "mgwfbp"), interference),
    },
    figures={
        **dict.fromkeys(("fig1", "fig2", "fig3", "fig4", "counterexample"), figure(sources=(EXAMPLES,))),
        "fig5a": figure("fig5a", "fig5a_tensors"),
        "fig5b": figure("fig5b", "fig5b_points"),
        "fig6": figure("fig6", "fig6b"),
        "fig7": figure("fig7", "fig7b"),
        "fig8": figure("fig8"),
        "fig9a": figure("fig9a"),
        "fig9b": figure("fig9b"),
        "gap": figure("gap"),
        "emulated": figure("emulated", of=emulated_runs),
        "training": figure("training", of=trained()),
    },
)

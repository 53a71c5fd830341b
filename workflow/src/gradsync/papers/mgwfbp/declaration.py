"""MG-WFBP (Shi, Chu, Li; INFOCOM 2019): its tables and figures, and what they are made from."""

from __future__ import annotations

from functools import partial

from gradsync.measure import carried
from gradsync.papers.declaration import (
    Paper,
    drawn,
    emulated_runs,
    interference,
    kept,
    made,
    network,
    profile,
    testbed,
    trained,
)
from gradsync.papers.emulated import emulated
from gradsync.papers.mgwfbp import examples
from gradsync.papers.mgwfbp.allreduce_times import fig5b, fig5b_points
from gradsync.papers.mgwfbp.convergence import fig6b, fig7b
from gradsync.papers.mgwfbp.examples import table2, timelines
from gradsync.papers.mgwfbp.gradient_sizes import fig5a, fig5a_tensors
from gradsync.papers.mgwfbp.scaling import fig9a, fig9b, gap
from gradsync.papers.mgwfbp.speedups import fig6, fig7, fig8
from gradsync.papers.slowdown import slowdown
from gradsync.papers.training import training

EXAMPLES = kept(*examples.FILES)
LOGGED = kept(carried.LAYERS, carried.ALLREDUCES)

PAPER = Paper(
    quick_seconds=300,
    inputs=(testbed,),
    replayed=(testbed, LOGGED, profile("resnet50")),
    tables={
        "table2": made(table2),
        "timelines": made(timelines, EXAMPLES),
        "fig5a": made(fig5a, profile("googlenet", "resnet50")),
        "fig5a_tensors": made(fig5a_tensors, profile("googlenet", "resnet50")),
        "fig5b": made(fig5b, LOGGED, network, emulated_runs),
        "fig5b_points": made(fig5b_points, LOGGED, network, emulated_runs),
        "fig6": made(fig6, LOGGED, trained("googlenet"), emulated_runs),
        "fig6b": made(fig6b, trained("googlenet")),
        "fig7": made(fig7, LOGGED, profile("resnet50"), trained("resnet50"), emulated_runs),
        "fig7b": made(fig7b, trained("resnet50")),
        "fig8": made(fig8, tables=("fig6", "fig7")),
        "fig9a": made(fig9a, tables=("gap",)),
        "fig9b": made(fig9b, tables=("gap",)),
        "gap": made(gap, LOGGED, profile("resnet50")),
        "emulated": made(partial(emulated, "mgwfbp"), emulated_runs),
        "training": made(partial(training, "mgwfbp"), trained()),
        "slowdown": made(partial(slowdown, "mgwfbp"), interference),
    },
    figures={
        **dict.fromkeys(("fig1", "fig2", "fig3", "fig4", "counterexample"), drawn(sources=(EXAMPLES,))),
        "fig5a": drawn("fig5a", "fig5a_tensors"),
        "fig5b": drawn("fig5b", "fig5b_points"),
        "fig6": drawn("fig6", "fig6b"),
        "fig7": drawn("fig7", "fig7b"),
        "fig8": drawn("fig8"),
        "fig9a": drawn("fig9a"),
        "fig9b": drawn("fig9b"),
        "gap": drawn("gap"),
        "emulated": drawn("emulated", of=emulated_runs),
        "training": drawn("training", of=trained()),
    },
)

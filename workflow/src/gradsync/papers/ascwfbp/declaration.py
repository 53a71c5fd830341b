"""ASC-WFBP (Shi, Chu, Li; INFOCOM 2021): its tables and figures, and what they are made from.

Its models are counted, not profiled: published totals give the scale.
"""

from __future__ import annotations

from functools import partial

from gradsync.papers.ascwfbp.bounds import constants, fig6, table5
from gradsync.papers.ascwfbp.communication import contention_points, fig4a, fig4b, fig5
from gradsync.papers.ascwfbp.examples import timelines
from gradsync.papers.ascwfbp.iterations import table4
from gradsync.papers.ascwfbp.models import table3
from gradsync.papers.ascwfbp.own_gap import own_model_table, shared_link
from gradsync.papers.declaration import (
    Paper,
    contention,
    counted,
    drawn,
    emulated_runs,
    interference,
    made,
    testbed,
    trained,
)
from gradsync.papers.emulated import emulated
from gradsync.papers.slowdown import slowdown
from gradsync.papers.training import training

MODELS = counted("resnet152", "densenet201", "inceptionv4", "bert_base")

PAPER = Paper(
    quick_seconds=130,
    inputs=(testbed,),
    replayed=(testbed, MODELS),
    tables={
        "table3": made(table3, MODELS),
        "timelines": made(timelines),
        "fig4a": made(fig4a, contention, emulated_runs),
        "fig4b": made(fig4b, contention, emulated_runs),
        "fig5": made(fig5, contention, emulated_runs),
        "contention_points": made(contention_points, contention, emulated_runs),
        "constants": made(constants, MODELS),
        "table4": made(table4, MODELS, trained(), emulated_runs),
        "fig6": made(fig6, tables=("table4",)),
        "table5": made(table5, MODELS, tables=("table4",)),
        "own_model": made(own_model_table, tables=("table4",)),
        "shared_link": made(shared_link, tables=("table4",)),
        "emulated": made(partial(emulated, "ascwfbp"), emulated_runs),
        "training": made(partial(training, "ascwfbp"), trained()),
        "slowdown": made(partial(slowdown, "ascwfbp"), interference),
    },
    figures={
        **dict.fromkeys(("fig1", "fig2", "fig3", "counterexample"), drawn()),  # examples
        "fig4a": drawn("contention_points", "fig4a"),
        "fig4b": drawn("contention_points", "fig4b"),
        "fig5": drawn("contention_points", "fig5"),
        "table4": drawn("table4"),
        "fig6": drawn("fig6"),
        "shared_link": drawn("shared_link"),
        "emulated": drawn("emulated", of=emulated_runs),
        "training": drawn("training", of=trained()),
    },
)

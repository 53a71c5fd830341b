"""ASC-WFBP (Shi, Chu, Li; INFOCOM 2021): its tables and figures, and what they are made from.

Its models are counted, not profiled: published totals give the scale.
"""

from __future__ import annotations

from functools import partial

from gradsync.papers.ascwfbp.bounds import constants, fig6, table5
from gradsync.papers.ascwfbp.communication import contention_points, fig4a, fig4b, fig5
from gradsync.papers.ascwfbp.examples import timelines
from gradsync.papers.ascwfbp.iterations import table4
from gradsync.papers.ascwfbp.losses import pairwise_model_table, shared_link
from gradsync.papers.ascwfbp.models import table3
from gradsync.papers.declaration import (
    Paper,
    contention,
    counted,
    emulated_runs,
    figure,
    interference,
    table,
    testbed,
    trained,
)
from gradsync.papers.emulated import emulated
from gradsync.papers.interference import interference_table
from gradsync.papers.training import training

MODELS = counted("resnet152", "densenet201", "inceptionv4", "bert_base")

PAPER = Paper(
    quick_seconds=95,
    printed=("fig1", "fig2", "fig3", "table3", "fig4", "fig5", "table4", "fig6", "table5"),
    inputs=(testbed,),
    replayed=(testbed, MODELS),
    tables={
        "table3": table(table3, MODELS),
        "timelines": table(timelines),
        "fig4a": table(fig4a, contention, emulated_runs),
        "fig4b": table(fig4b, contention, emulated_runs),
        "fig5": table(fig5, contention, emulated_runs),
        "contention_points": table(contention_points, contention, emulated_runs),
        "constants": table(constants, MODELS),
        "table4": table(table4, MODELS, trained(), emulated_runs),
        "fig6": table(fig6, tables=("table4",)),
        "table5": table(table5, MODELS, tables=("table4",)),
        "own_model": table(pairwise_model_table, tables=("table4",)),
        "shared_link": table(shared_link, tables=("table4",)),
        "emulated": table(partial(emulated, "ascwfbp"), emulated_runs),
        "training": table(partial(training, "ascwfbp"), trained()),
        "slowdown": table(partial(interference_table, "ascwfbp"), interference),
    },
    figures={
        **dict.fromkeys(("fig1", "fig2", "fig3", "counterexample"), figure()),  # examples
        "fig4a": figure("contention_points", "fig4a"),
        "fig4b": figure("contention_points", "fig4b"),
        "fig5": figure("contention_points", "fig5"),
        "table4": figure("table4"),
        "fig6": figure("fig6"),
        "shared_link": figure("shared_link"),
        "emulated": figure("emulated", of=emulated_runs),
        "training": figure("training", of=trained()),
    },
)

"""Top-k sparsification on public clouds (Shi et al., 2020): its tables and figures, and what they are made from."""

from __future__ import annotations

from functools import partial

from gradsync.papers import declaration
from gradsync.papers.cloud_topk.accuracies import table2
from gradsync.papers.cloud_topk.aggregation import fig7, fig8
from gradsync.papers.cloud_topk.algorithm1 import algorithm1
from gradsync.papers.cloud_topk.complexity import complexity
from gradsync.papers.cloud_topk.convergence import fig10, fig10_epochs, shown_launches
from gradsync.papers.cloud_topk.data_cache import fig9
from gradsync.papers.cloud_topk.emulated_runs import trainings_left, vectors_left
from gradsync.papers.cloud_topk.iterations import fig1, table3, table4
from gradsync.papers.cloud_topk.measured_runs import measured_launches
from gradsync.papers.cloud_topk.models import COUNTED, models, pto_split
from gradsync.papers.cloud_topk.numbers import published, table1
from gradsync.papers.cloud_topk.pto import TIMED, measured_ratios, pto
from gradsync.papers.cloud_topk.recipe import table5
from gradsync.papers.cloud_topk.selection_times import fig6
from gradsync.papers.declaration import (
    Paper,
    counted,
    emulated_runs,
    figure,
    loading,
    selection,
    stopped_at_accuracy,
    table,
    testbed,
)
from gradsync.papers.emulated import emulated

PAPER = Paper(
    quick_seconds=65,
    printed=(
        "table1",
        "fig1",
        "algorithm1",
        "fig6",
        "fig7",
        "fig8",
        "fig9",
        "fig10",
        "table2",
        "table3",
        "table4",
        "table5",
    ),
    inputs=(testbed, declaration.published),
    replayed=(testbed, counted(*COUNTED)),
    tables={
        "published": table(published),
        "table1": table(table1),
        "complexity": table(complexity),
        "models": table(models, counted(*COUNTED)),
        "pto_split": table(pto_split, counted(*COUNTED)),
        "pto": table(pto, counted(*TIMED), measured_ratios),
        "algorithm1": table(algorithm1),
        "fig1": table(fig1, counted(*COUNTED)),
        "fig6": table(fig6, selection),
        "fig7": table(fig7, vectors_left),
        "fig8": table(fig8, vectors_left),
        "fig9": table(fig9, loading),
        "fig10": table(fig10, shown_launches),
        "fig10_epochs": table(fig10_epochs, shown_launches),
        "table2": table(table2, tables=("fig10",)),
        "table3": table(table3, counted(*COUNTED), trainings_left, measured_launches),
        "table4": table(table4, counted(*COUNTED), measured_launches),
        "table5": table(table5, stopped_at_accuracy, tables=("table4",)),
        "emulated": table(partial(emulated, "cloud_topk"), emulated_runs),
    },
    figures={
        "complexity": figure("complexity"),
        "fig1": figure("fig1"),
        "fig6": figure("fig6"),
        "fig7": figure("fig7"),
        "fig8": figure("fig8"),
        "fig9": figure("fig9"),
        "fig10": figure("fig10_epochs", of=shown_launches),
        "table3": figure("table3"),
        "table4": figure("table4"),
        "table5": figure("table5"),
        "pto": figure("pto"),
        "emulated": figure("emulated", of=emulated_runs),
    },
)

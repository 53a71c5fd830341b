"""Top-k sparsification on public clouds (Shi et al., 2020): its tables and figures, and what they are made from."""

from __future__ import annotations

from gradsync.papers import declaration
from gradsync.papers.cloud_topk.algorithm1 import algorithm1
from gradsync.papers.cloud_topk.complexity import complexity
from gradsync.papers.cloud_topk.convergence import fig10, fig10_epochs
from gradsync.papers.cloud_topk.data_cache import fig9
from gradsync.papers.cloud_topk.models import COUNTED, models, pto_split
from gradsync.papers.cloud_topk.numbers import published, table1, table5
from gradsync.papers.cloud_topk.selection_times import fig6
from gradsync.papers.declaration import Paper, counted, figure, loading, selection, table, testbed, trained

PAPER = Paper(
    quick_seconds=45,
    inputs=(testbed, declaration.published),
    tables={
        "published": table(published),
        "table1": table(table1),
        "table5": table(table5),
        "complexity": table(complexity),
        "models": table(models, counted(*COUNTED)),
        "pto_split": table(pto_split, counted(*COUNTED)),
        "algorithm1": table(algorithm1),
        "fig6": table(fig6, selection),
        "fig9": table(fig9, loading),
        "fig10": table(fig10, trained()),
        "fig10_epochs": table(fig10_epochs, trained()),
    },
    figures={
        "complexity": figure("complexity"),
        "table5": figure("table5"),
        "fig6": figure("fig6"),
        "fig9": figure("fig9"),
        "fig10": figure("fig10_epochs", of=trained()),
    },
)

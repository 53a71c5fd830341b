"""Top-k sparsification on public clouds (Shi et al., 2020): its tables and figures, and what they are made from.

What follows from published numbers, from counts and from rounds on links is here, and simulated times of LARS. Tables 2
to 4, Fig. 1 and 6 to 10 no table has yet.
"""

from __future__ import annotations

from gradsync.papers import declaration
from gradsync.papers.cloud_topk.complexity import complexity
from gradsync.papers.cloud_topk.models import COUNTED, models, pto_split
from gradsync.papers.cloud_topk.numbers import published, table1, table5
from gradsync.papers.cloud_topk.pto import TIMED, pto
from gradsync.papers.declaration import Paper, counted, figure, table, testbed

PAPER = Paper(
    quick_seconds=25,
    inputs=(testbed, declaration.published),
    tables={
        "published": table(published),
        "table1": table(table1),
        "table5": table(table5),
        "complexity": table(complexity),
        "models": table(models, counted(*COUNTED)),
        "pto_split": table(pto_split, counted(*COUNTED)),
        "pto": table(pto, counted(*TIMED)),
    },
    figures={"complexity": figure("complexity"), "table5": figure("table5"), "pto": figure("pto")},
)

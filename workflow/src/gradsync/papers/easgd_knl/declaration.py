"""EASGD on GPU and KNL clusters (You, Buluc, Demmel; SC17): its tables and figures, and what they are made from.

What follows from published numbers, from counts and from the cost of messages is here. Table 3, Fig. 6, 8, 11 and 13,
and what else its claims ask of training by elastic averaging, no table has yet.
"""

from __future__ import annotations

from gradsync.papers.declaration import Paper, counted, figure, published, table, testbed
from gradsync.papers.easgd_knl.constants import constants, constants_scaling
from gradsync.papers.easgd_knl.data_sets import files, table1
from gradsync.papers.easgd_knl.layout import fig10
from gradsync.papers.easgd_knl.models import COUNTED, models
from gradsync.papers.easgd_knl.networks import SENT, table2
from gradsync.papers.easgd_knl.partition import copies, fig12
from gradsync.papers.easgd_knl.scaling import table4

PAPER = Paper(
    quick_seconds=30,
    inputs=(testbed, published),
    tables={
        "table1": table(table1, files),
        "constants": table(constants),
        "constants_scaling": table(constants_scaling),
        "copies": table(copies),
        "fig12": table(fig12),
        "table4": table(table4),
        "models": table(models, counted(*COUNTED)),
        "table2": table(table2, counted(*SENT)),
        "fig10": table(fig10, counted(*SENT)),
    },
    figures={"fig10": figure("fig10"), "fig12": figure("fig12"), "table4": figure("table4")},
)

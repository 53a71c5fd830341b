"""EASGD on GPU and KNL clusters (You, Buluc, Demmel; SC17): its tables and figures, and what they are made from.

What asks for training is made of the launches of `elastic`; simulated, such trainings have the times of its GPU node.
"""

from __future__ import annotations

from functools import partial

from gradsync.papers.declaration import Paper, counted, emulated_runs, figure, published, table, testbed
from gradsync.papers.easgd_knl.batch_size import batch
from gradsync.papers.easgd_knl.constants import constants, constants_scaling
from gradsync.papers.easgd_knl.data_sets import files, table1
from gradsync.papers.easgd_knl.error_curves import curves, fig6, stability, time_to_error
from gradsync.papers.easgd_knl.exchanges import exchanges
from gradsync.papers.easgd_knl.layout import fig10
from gradsync.papers.easgd_knl.models import COUNTED, models
from gradsync.papers.easgd_knl.more_machines import fig13
from gradsync.papers.easgd_knl.names import CHIP_PARTS, EXCHANGES, FIGURES, MORE_MACHINES, ONE_WORKER
from gradsync.papers.easgd_knl.networks import SENT, table2
from gradsync.papers.easgd_knl.partition import copies, fig12
from gradsync.papers.easgd_knl.reproducibility import determinism
from gradsync.papers.easgd_knl.scaling import table4
from gradsync.papers.easgd_knl.testbed import EASGD
from gradsync.papers.easgd_knl.time_parts import table3
from gradsync.papers.easgd_knl.training_runs import elastic_runs, elastic_runs_again
from gradsync.papers.emulated import emulated

PAPER = Paper(
    quick_seconds=45,
    printed=("table1", "fig6", "fig8", "table2", "fig10", "fig11", "table3", "fig12", "table4", "fig13"),
    inputs=(testbed, published),
    replayed=(testbed, counted(*SENT)),
    tables={
        "table1": table(table1, files),
        "constants": table(constants),
        "constants_scaling": table(constants_scaling),
        "copies": table(copies),
        "fig12": table(fig12, elastic_runs(CHIP_PARTS)),
        "table4": table(table4),
        "models": table(models, counted(*COUNTED)),
        "table2": table(table2, counted(*SENT)),
        "fig10": table(fig10, counted(*SENT), emulated_runs),
        "table3": table(table3, elastic_runs(*EASGD)),
        "exchanges": table(exchanges, elastic_runs(*EXCHANGES)),
        "curves": table(curves, elastic_runs(*FIGURES)),
        "fig6": table(fig6, elastic_runs(*FIGURES, by_length=True)),
        "time_to_error": table(time_to_error, elastic_runs(*FIGURES)),
        "stability": table(stability, elastic_runs(*FIGURES, by_length=True)),
        "determinism": table(determinism, elastic_runs_again),
        "fig13": table(fig13, elastic_runs(MORE_MACHINES)),
        "batch": table(batch, elastic_runs(ONE_WORKER, workers=1)),
        "emulated": table(partial(emulated, "easgd_knl"), emulated_runs),
    },
    figures={
        "fig10": figure("fig10"),
        "fig12": figure("fig12"),
        "table4": figure("table4"),
        "fig11": figure("table3"),
        "fig6": figure("curves", of=elastic_runs(*FIGURES)),
        "fig8": figure("curves", "fig6", of=elastic_runs(*FIGURES)),
        "fig13": figure("fig13", of=elastic_runs(MORE_MACHINES, workers=1)),
    },
)

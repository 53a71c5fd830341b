"""Table IV on an emulated testbed: a host stands for a node of four GPUs that share its link and compute alike."""

from __future__ import annotations

from pathlib import Path

from gradsync.configuration.launches import Emulation
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.ascwfbp.testbed import CENTRE, MODELS, bench, workload
from gradsync.papers.emulation import StandIn


def stand_in(job: Emulation, settings: Settings, results: Path) -> StandIn:
    """What the launch stands for, at the middle of the band; raises InputError for a model that the paper lacks."""
    if job.model not in MODELS:
        raise InputError(
            f"emulated launch {job.job}: the paper has no model {job.model!r}; it has: {', '.join(MODELS)}"
        )
    testbed = bench(settings)
    return StandIn(
        workload(job.model, settings, results, CENTRE),
        testbed.link,
        None,  # b of the paper is its full link
        str(CENTRE),
        testbed.a,
    )

"""The interference of computation and messages on the cores that they share, which predictions count with."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.costs.interference import Interference
from gradsync.papers.table import BY_SCHEME, Table
from gradsync.statistics.intervals import shown

UNKNOWN = (float("nan"), float("nan"))  # of too few rounds, or factors that somebody wrote by hand
CAPTION = (
    "Computation beside a message in flight, and the message beside computation, each against itself alone (medians of "
    "rounds, in brackets the interval; a factor below 1 is noise and counts as 1). Both are threads of a rank on the "
    "same cores. Handing over to the other thread is the same for all sizes."
)


def interference_table(paper: str, settings: Settings, results: Path) -> Table:
    """A row per launch of a paper and message size; measured apart from the runs that it helps to predict."""
    rows = []
    for job in filter(lambda job: job.profile_iterations, settings.of(paper)):
        interference = Interference.load(results / "profile" / job.job / "interference.json", job.ranks)
        for point in interference.points:
            low, high = point.computation_interval or UNKNOWN
            message_low, message_high = point.communication_interval or UNKNOWN
            rows.append(
                {
                    "rung": "measured",
                    "model": job.model,
                    "nodes": job.ranks,
                    "bytes": point.bytes,
                    "computation_factor": point.computation,
                    "computation_factor_low": low,
                    "computation_factor_high": high,
                    "communication_factor": point.communication,
                    "communication_factor_low": message_low,
                    "communication_factor_high": message_high,
                    "handover_seconds": interference.handover_seconds,
                }
            )
    if not rows:
        nothing = f"no training for {paper} in this configuration"
        return Table(pd.DataFrame(columns=BY_SCHEME), pd.DataFrame({"model": [nothing]}), f"Slow-down: {nothing}.")
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "model": frame.model,
            "ranks": frame.nodes,
            "message bytes": frame.bytes,
            **{f"{what} slowed": _interval(frame, f"{what}_factor") for what in ("computation", "communication")},
            "handover ms": [f"{1e3 * seconds:.2f}" for seconds in frame.handover_seconds],
        }
    )
    return Table(frame, display, CAPTION)


def _interval(frame: pd.DataFrame, column: str) -> list[str]:
    values = zip(frame[column], frame[f"{column}_low"], frame[f"{column}_high"], strict=True)
    return [shown(each, ".2f") for each in values]

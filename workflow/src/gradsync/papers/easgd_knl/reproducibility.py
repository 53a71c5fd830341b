"""Whether a method is deterministic: one seed, trained several times, and its trained models compared bit by bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.easgd_knl.training_runs import Run, runs_again
from gradsync.papers.labels import labels
from gradsync.papers.repeats import LAUNCH
from gradsync.papers.table import Table
from gradsync.statistics.intervals import repeats_needed

REFERENCE = "sync_easgd1"  # with which the trained models of others are compared
COLUMNS = ["rung", "scheme", "nodes", "assumption", LAUNCH, "runs", "distinct_results", "difference", "note"]


def determinism(settings: Settings, results: Path) -> Table:
    """A row per method that is trained again."""
    again = runs_again(settings, results)
    frame = pd.DataFrame([_row(run, again, results) for run in again], columns=COLUMNS)
    display = pd.DataFrame(
        {
            "method": frame.scheme.map(labels(settings)),
            "rung": frame.rung,
            "workers": frame.nodes,
            "trainings": frame.runs,
            "different results": frame.distinct_results.map(lambda count: "-" if pd.isna(count) else f"{count:.0f}"),
            "off Sync EASGD1 by": frame.difference.map(lambda each: "-" if pd.isna(each) else f"{each:.0e}"),
        }
    )
    caption = (
        f"Trainings of one seed, and how many different models come out, bit by bit. Of fewer than {repeats_needed()} "
        "that are alike nothing is known. The last column is the largest relative difference from the model that Sync "
        "EASGD1 trains from that seed."
    )
    nothing = pd.DataFrame({"method": ["no launch of this configuration trains one seed again"]})
    return Table(frame, display if len(display) else nothing, caption)


def _row(run: Run, others: list[Run], results: Path) -> dict[str, Any]:
    trainings, distinct = run.result.summary["runs"], run.result.summary["distinct_results"]
    known = distinct > 1 or trainings >= repeats_needed()
    reference = next(
        (each for each in others if each.scheme == REFERENCE and each.launch == run.launch and run.launch.keep), None
    )
    row = {key: value for key, value in run.keys.items() if key in COLUMNS}
    return {
        **row,
        "runs": trainings,
        "distinct_results": distinct if known else None,
        "difference": None if reference is None else _difference(_trained(run, results), _trained(reference, results)),
        "note": "" if known else f"{trainings:.0f} trainings that are alike, {repeats_needed()} are needed",
    }


def _difference(model: np.ndarray, reference: np.ndarray) -> float:
    """The largest, relative to the largest parameter."""
    return float(np.abs(model - reference).max() / np.abs(reference).max())


def _trained(run: Run, results: Path) -> np.ndarray:
    """The trained model of the first seed; raises InputError if it isn't there."""
    path = results / "runs" / "elastic" / run.launch.job / run.scheme / f"final-{run.launch.seeds[0]}.npy"
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"model {path}: can't be read: {error}: run its launch again") from None

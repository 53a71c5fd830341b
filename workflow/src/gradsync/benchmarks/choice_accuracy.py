"""How good the scheme is that predictions put first, among those of an emulated launch; from finished launches.

Predictions are those that `gradsync advise` ranks by: of plans on costs that were measured on the testbed. Targets: the
first choice is the fastest scheme of its launch, or takes at most 1.03 times as long, in at least 12 settings (models,
hosts, what a connection gets of its link). How well the order of all schemes was predicted is told: the rank
correlation (Spearman), and the part of the pairs that differ by more than 3 % whose order is right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from gradsync.benchmarks import rows
from gradsync.benchmarks.rows import Row
from gradsync.configuration.settings import Settings
from gradsync.errors import InputError
from gradsync.papers.emulated import Run, runs
from gradsync.statistics.intervals import median_interval

MOST_OVER_FASTEST = 1.03
LEAST_SETTINGS = 12
ENDED, STATUS, NOT_RUN = "runs/emulated", "status.json", "it has not ended yet"
TOLD_APART = 1.03  # iteration times of a pair, one over the other


def measure(settings: Settings, results: Path) -> Row:
    """A row per emulated launch of a configuration that has predictions, and one of all.

    Raises InputError if none of its launches could run, or has two schemes with predictions.
    """
    launches = {
        launch.job: runs(launch, results) if (results / ENDED / launch.job / STATUS).is_file() else ([], NOT_RUN)
        for launch in settings.emulated
    }
    notes = [f"{job}: not emulated: {reason}" for job, (_, reason) in launches.items() if reason]
    predicted = {
        job: [run for run in made if np.isfinite(run.predicted_seconds)] for job, (made, _) in launches.items()
    }
    of_launches = [of_launch(job, made) for job, made in predicted.items() if len(made) > 1]
    if not of_launches:
        raise InputError(
            "benchmark advice: no emulated launch of this configuration has two schemes with predictions: "
            "run snakemake --configfile config/advice.yaml, then this with --config config/advice.yaml"
        )
    over = [row["ratio"] for row in of_launches]
    pairs, right = (sum(row[key] for row in of_launches) for key in ("pairs_told_apart", "pairs_in_order"))
    whole = {
        "task": f"first choice / fastest, mean of {len(over)} settings",
        "ratio": float(np.mean(over)),
        "worst": max(over),
        "pairs_told_apart": pairs,
        "pairs_in_order": right,
        "target_settings": LEAST_SETTINGS,
        "met": len(over) >= LEAST_SETTINGS,
    }
    return rows.result([*of_launches, whole], notes=notes)


def of_launch(job: str, made: Sequence[Run]) -> Row:
    """The first choice over the fastest, repeat by repeat; the correlation is None if either order is all ties."""
    samples = {run.name: run.samples() for run in made}
    times = pd.DataFrame(
        {"predicted": run.predicted_seconds, "emulated": np.median(samples[run.name])} for run in made
    ).set_axis(list(samples))
    first, fastest = str(times.predicted.idxmin()), str(times.emulated.idxmin())
    interval = median_interval(samples[first] / samples[fastest])
    in_order = list(_in_order(times))
    spearman = times.predicted.rank().corr(times.emulated.rank())
    return {
        "task": f"{job}: {first}, predicted to be first, / {fastest}, the fastest",
        **rows.ratio(interval),
        "schemes": len(made),
        "rank_correlation": None if np.isnan(spearman) else spearman,
        "pairs_told_apart": len(in_order),
        "pairs_in_order": sum(in_order),
        "predicted_seconds": times.predicted.to_dict(),
        "emulated_seconds": times.emulated.to_dict(),
        "target_ratio": MOST_OVER_FASTEST,
        "met": interval[1] <= MOST_OVER_FASTEST,
    }


def _in_order(times: pd.DataFrame) -> Iterator[bool]:
    """Of each pair whose emulated times differ by more than a bound: whether predictions have its order."""
    times = times.sort_values("emulated")
    for (one, emulated), (other, slower) in combinations(zip(times.predicted, times.emulated, strict=True), 2):
        if slower > TOLD_APART * emulated:
            yield bool(one < other)

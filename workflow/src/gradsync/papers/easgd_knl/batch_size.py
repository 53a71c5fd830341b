"""Section 7.2: what the batch does to throughput, epochs and time to one error; one worker, so that nothing is sent.

Learning rate and momentum are the best for each batch, of the launches that a configuration has with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.easgd_knl.names import LEVELS, ONE_WORKER
from gradsync.papers.easgd_knl.training_runs import Run, runs
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES, cells, of_a_quiet_machine, text
from gradsync.papers.table import Table

SMALL = 32  # the batch whose best rates are kept
MEASURED = ("samples_per_second", "epochs", "seconds", "seconds_kept")
COLUMNS = [
    *("rung", "scheme", "model", "batch", "assumption", "data", LAUNCH, REPEATS, "lr", "momentum", "error"),
    *(f"{column}{end}" for column in MEASURED for end in ("", LOW, HIGH, SAMPLES)),
    "note",
]


class _Rates(NamedTuple):
    lr: float
    momentum: float


def batch(settings: Settings, results: Path) -> Table:
    """A row per batch."""
    alone = [run for run in runs(settings, results, [ONE_WORKER], workers=1) if run.launch.testbed is None]
    frame = pd.DataFrame(list(_rows(alone)), columns=COLUMNS)
    display = pd.DataFrame(
        {
            "batch": frame.batch,
            "learning rate": frame.lr,
            "momentum": frame.momentum,
            "samples a second": [text(row, "samples_per_second", ".0f") for _, row in frame.iterrows()],
            "epochs": [text(row, "epochs", ".1f") for _, row in frame.iterrows()],
            "time [s]": [text(row, "seconds", ".2f") for _, row in frame.iterrows()],
            f"time with the rates of {SMALL} [s]": [text(row, "seconds_kept", ".2f") for _, row in frame.iterrows()],
        }
    )
    error = f" of {frame.error.iloc[0]:g}" if len(frame) else ""
    caption = (
        f"Section 7.2: one worker, time and epochs to a test error{error} with the best learning rate and momentum of "
        f"those that are tried; and with those that are best for a batch of {SMALL}, of which a run that does not get "
        "there counts whole."
    )
    nothing = pd.DataFrame({"batch": [f"no launch of this configuration trains {ONE_WORKER} with one worker"]})
    return Table(frame, display if len(display) else nothing, caption)


def _rows(alone: list[Run]) -> Iterator[dict[str, Any]]:
    by_batch: dict[int, dict[_Rates, Run]] = {}
    for run in alone:
        rates = _Rates(run.launch.lr, run.launch.momentum)
        by_batch.setdefault(run.launch.batch, {}).setdefault(rates, run)
    best = {size: _best(tried) for size, tried in by_batch.items()}
    for size in sorted(by_batch):
        tried, rates = by_batch[size], best[size]
        run = tried[rates]
        error = LEVELS[run.launch.data][0]
        keys = {key: value for key, value in run.keys.items() if key in COLUMNS}
        keys |= {"batch": size, "assumption": "", "error": error, "lr": rates.lr, "momentum": rates.momentum}
        seconds = np.array(run.result.samples["iteration_seconds"])
        row = {**keys, **cells("samples_per_second", size / seconds)}
        there = [each for each in run.reached(error) if each is not None]
        if len(there) == len(run.seeds):
            an_epoch = float(run.result.settings["turns_an_epoch"])
            row |= cells("epochs", [turns / an_epoch for turns, _ in there])
            row |= cells("seconds", [each for _, each in there])
        else:
            row["note"] = f"{len(there)} of {len(run.seeds)} seeds get to an error of {error:g} with the best rates"
        kept = tried.get(best.get(SMALL, rates)) if SMALL in by_batch else None
        if kept is not None:
            row |= cells("seconds_kept", _least(kept, error))
        if kept is not run:
            row.pop(f"seconds_kept{SAMPLES}", None)  # of another launch, whose seeds are no pairs with these
        yield of_a_quiet_machine(row, [*run.result.notes, *(kept.result.notes if kept is not None else ())])


def _best(tried: dict[_Rates, Run]) -> _Rates:
    """Those with which the median seed is there first; a seed that does not get there counts twice its whole run."""

    def seconds(rates: _Rates) -> float:
        run = tried[rates]
        error = LEVELS[run.launch.data][0]
        each = [
            2 * end[1] if there is None else there[1] for there, end in zip(run.reached(error), run.ends(), strict=True)
        ]
        return float(np.median(each))

    return min(tried, key=seconds)


def _least(run: Run, error: float) -> list[float]:
    """By seed, seconds to the error, or those of the whole run."""
    return [end[1] if there is None else there[1] for there, end in zip(run.reached(error), run.ends(), strict=True)]

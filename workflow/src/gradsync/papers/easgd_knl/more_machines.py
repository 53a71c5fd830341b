"""Fig. 13: the loss on more machines after one time, and the time to one loss; a machine is a worker of Algorithm 4.

The time is a share of that of the whole training on one machine. Simulated, trainings are the measured ones, whose
iterations are as far apart as on the paper's GPU node (`gpu_node.py`).

Differs from the paper: its machines have a copy of the data each, so that data grow with machines; here they share one
set, of which each takes other samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.easgd_knl.coverage import SHARES
from gradsync.papers.easgd_knl.names import MORE_MACHINES
from gradsync.papers.easgd_knl.training_runs import OBSERVED, TRAINED, Run, longest, runs
from gradsync.papers.repeats import HIGH, LAUNCH, LOW, REPEATS, SAMPLES
from gradsync.papers.table import Table

TIMED = ("loss", "seconds")
COLUMNS = [
    *("rung", "scheme", "model", "nodes", "share", "assumption", "data", LAUNCH, REPEATS),
    *(f"{column}{end}" for column in TIMED for end in ("", LOW, HIGH, SAMPLES)),
    *(f"{OBSERVED}{column}" for column in TIMED),
    *("moment", "note"),
]


def fig13(settings: Settings, results: Path) -> Table:
    """A row per number of machines and share of the time; measured, and simulated over the band."""
    rows: list[dict[str, Any]] = []
    for of_point in _by_point(settings, results):
        alone = next((run for run in of_point if run.launch.workers == 1), None)
        for run in of_point if alone else ():
            assert alone is not None
            for share in SHARES:
                rows.append(_measured(run, alone, share))
            single = {keys["assumption"]: each.seconds for keys, each in alone.simulated(settings)}  # none of hosts
            for keys, each in run.simulated(settings):
                pace = each.seconds, single[keys["assumption"]]
                rows += [_simulated(keys, run, alone, share, *pace) for share in SHARES]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    caption = (
        "Fig. 13: training loss after half of and the whole time of a run on one machine, and the time to the loss "
        "that one machine has then. Here: on this machine or between emulated hosts, in brackets if ranks were slowed "
        "down by one another. GPU node: simulated at the first point of the band. Machines share one data set; those "
        "of the paper have a copy each."
    )
    return Table(frame, _display(frame), caption)


def _by_point(settings: Settings, results: Path) -> Iterator[list[Run]]:
    points: dict[tuple[str, str], list[Run]] = {}
    for run in longest(runs(settings, results, [MORE_MACHINES], "cifar10")):
        points.setdefault((run.launch.model, run.keys["assumption"]), []).append(run)
    yield from points.values()


def _measured(run: Run, alone: Run, share: float) -> dict[str, Any]:
    here = [_both(own, single, share) for own, single in _pairs(run, alone)]
    row = {**run.keys, "share": share, "moment": float(np.median([moment for *_, moment in here]))}
    for column, values in zip(TIMED, zip(*here, strict=True), strict=False):
        known = [value for value in values if value is not None]
        row |= run.timed(column, known if len(known) == len(values) else None)
    return row


def _simulated(
    keys: dict[str, Any], run: Run, alone: Run, share: float, seconds: float, seconds_alone: float
) -> dict[str, Any]:
    retimed = [
        (own.assign(seconds=own.step * seconds), single.assign(seconds=single.step * seconds_alone))
        for own, single in _pairs(run, alone)
    ]
    here = [_both(*pair, share) for pair in retimed]
    row = {**keys, "share": share, "moment": float(np.median([moment for *_, moment in here]))}
    medians: dict[str, float | None] = {}
    for column, values in zip(TIMED, zip(*here, strict=True), strict=False):
        known = [value for value in values if value is not None]
        medians[column] = float(np.median(known)) if len(known) == len(values) else None
    return row | run.decided(**medians)


def _pairs(run: Run, alone: Run) -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """The curves of each seed that both have."""
    return [(part, alone.by_seed[seed]) for seed, part in run.by_seed.items() if seed in alone.by_seed]


def _both(own: pd.DataFrame, single: pd.DataFrame, share: float) -> tuple[float | None, float | None, float]:
    """(loss after that share of the time of one machine, seconds to its loss then, that time); None: not known."""
    moment = share * float(single.seconds.iloc[-1])
    until = own[own.seconds <= moment * (1 + 1e-9)]
    lasts = float(own.seconds.iloc[-1]) >= moment * (1 - 1e-9)
    loss = float(until.loss.iloc[-1]) if lasts and len(until) else None
    target = single[single.seconds <= moment * (1 + 1e-9)]
    there = own[own.loss <= target.loss.iloc[-1]] if len(target) else own[:0]
    return loss, float(there.seconds.iloc[0]) if len(there) else None, moment


def _display(frame: pd.DataFrame) -> pd.DataFrame:
    simulated = frame[frame.rung == "simulated"]
    first = {key: part.iloc[0].to_dict() for key, part in simulated.groupby([LAUNCH, "share"], sort=False)}
    rows = []
    for row in frame[frame.rung.isin(TRAINED)].to_dict("records"):
        on_node: dict[Any, Any] = first.get((row[LAUNCH], row["share"]), {})
        brackets = "{}" if pd.notna(row["loss"]) else "[{}]"
        rows.append(
            {
                "machines": row["nodes"],
                "rung": row["rung"],
                "share of the time": f"{row['share']:g}",
                "loss here": brackets.format(_number(row[f"{OBSERVED}loss"], ".3f")),
                "time here [s]": brackets.format(_number(row[f"{OBSERVED}seconds"], ".1f")),
                "loss, GPU node": _number(on_node.get(f"{OBSERVED}loss"), ".3f"),
                "time on it [s]": _number(on_node.get(f"{OBSERVED}seconds"), ".2f"),
            }
        )
    return pd.DataFrame(rows or [{"machines": f"no launch of {MORE_MACHINES} on one machine in this configuration"}])


def _number(value: Any, form: str) -> str:
    return "-" if value is None or pd.isna(value) else format(value, form)

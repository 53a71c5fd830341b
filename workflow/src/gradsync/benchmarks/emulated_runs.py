"""How emulated training holds against what was predicted of it, and against stock DDP: from the files of finished runs.

Targets if computation is replayed: predicted iteration times are off by at most 5 % in the mean and 10 % at worst;
mgwfbp and optimal take at most 1.02 times as long as stock DDP with the best bucket of a sweep, in each launch, and for
GoogLeNet at most 0.8 times as long as DDP with its defaults. Runs that really compute share the cores of this machine:
they are shown and have no target. Ratios are those of neighbouring blocks of a launch; if there are too few for an
interval, their median is held against the target, and a note says so.

Plans on several lanes are held against the better of two contenders on one lane: `optimal`, and stock DDP with its best
bucket. The search for the best such plan takes at most 1.02 times as long if a connection may fill its link, 0.85 if it
gets 0.75 of it, 0.75 if it gets 0.6. The other plans on several lanes are shown too.

No schedule can change the forward pass of an iteration: each ratio has a column with the ratio of the rest alone. Plans
on several lanes have a column with their part of the largest speed-up that the link allows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync.benchmarks.rows import Row, conformance, ratio
from gradsync.engine.bounds import largest_speedup
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.papers.emulated_bounds import hard_bound
from gradsync.plan.workload import Workload
from gradsync.runtime.replay import is_replay
from gradsync.statistics.intervals import median_interval, repeats_needed

MEAN_ERROR, WORST_ERROR = 0.05, 0.10
WITH_TARGET = ("mgwfbp", "optimal")
STOCK, BEST = "ddp", "ddp_best"
RATIO_TO_BEST, RATIO_TO_STOCK = 1.02, 0.8
ON_SEVERAL_LANES = ("ascwfbp", "kway", "striped", "searched")
SEARCHED = "searched"  # the one of them that has a target
ONE_LINK = "switch"  # the topology in which every host has one
RATIO_ON_SEVERAL_LANES = {1.0: 1.02, 0.75: 0.85, 0.6: 0.75}  # by the share of a link that a connection gets
ONE_BUCKET = "googlenet"  # the model of which stock DDP makes one bucket, and loses most


def rows(results: Path) -> tuple[list[Row], list[str]]:
    """(rows of plans and of pairs of contenders, notes on what is missing) from `results` of a configuration.

    Raises InputError for a file that can't be read.
    """
    runs = results / "runs" / "emulated"
    launches: dict[str, dict[str, Result]] = {}
    for path in sorted(runs.glob("*/*/result.json")):
        launches.setdefault(path.parts[-3], {})[path.parts[-2]] = Result.load(path)
    if not launches:
        note = f"no emulated runs in {runs}: no prediction and no stock DDP to compare: run config/emulated.yaml first"
        return [], [note, *_missing(runs)]
    planned = [row for job, launch in launches.items() for row in _predicted(job, launch, results)]
    paired = [row for job, launch in launches.items() for row in _paired(job, launch, results)]
    paired += [row for job, launch in launches.items() for row in _on_several_lanes(job, launch, results)]
    notes = list(_missing(runs))
    notes += [
        f"{job}: no {BEST} beside {', '.join(plans)}: not compared with stock DDP"
        for job, launch in launches.items()
        if (plans := [name for name in WITH_TARGET if name in launch]) and BEST not in launch
    ]
    notes += [
        f"{row['task']}: {row['pairs']} pair(s) have no interval, {repeats_needed()} would: held by the median alone"
        for row in paired
        if row["ratio_low"] is None and row["target_ratio"] is not None
    ]
    errors = [row["error"] for row in planned if row["target_error"] is not None]
    if not errors:
        return [*planned, *paired], [*notes, "no emulated run of a plan with replayed computation: no mean error"]
    mean = {
        "task": f"mean error of {len(errors)} predictions, replayed computation",
        "ratio": float(np.mean(errors)),
        "worst": max(errors),
        "target_ratio": MEAN_ERROR,
        "met": float(np.mean(errors)) <= MEAN_ERROR,
    }
    return [*planned, mean, *paired], notes


def _missing(runs: Path) -> Iterator[str]:
    """Launches that were tried on a machine that can't emulate them."""
    for path in sorted(runs.glob("*/status.json")):
        status = _json(path)
        if not status.get("possible"):
            yield f"{path.parts[-2]}: not emulated: {status.get('reason')}"


def _predicted(job: str, launch: Mapping[str, Result], results: Path) -> Iterator[Row]:
    """A row for each run that has a prediction."""
    for name, result in launch.items():
        path = results / "plans" / "emulated" / job / f"{name}.prediction.json"
        if not path.is_file():
            continue
        prediction, emulated = _prediction(path), result.summary["iteration_seconds"]
        over_emulated, hard = prediction["iteration_seconds"] / emulated, hard_bound(results, job, result)
        replayed = _is_replayed(result)
        yield {
            "task": f"{job}, {name}: predicted / emulated",
            "ratio": over_emulated,
            "error": abs(over_emulated - 1),
            "emulated_seconds": emulated,
            "emulated_seconds_low": result.summary.get("iteration_seconds_low"),
            "emulated_seconds_high": result.summary.get("iteration_seconds_high"),
            "predicted_seconds": prediction["iteration_seconds"],
            "hard_bound_seconds": None if math.isnan(hard) else hard,
            "model_bound_seconds": prediction.get("model_bound_seconds"),
            "computation": "replayed" if replayed else "real",
            **_network(result),
            **conformance(result),
            "target_error": WORST_ERROR if replayed else None,
            "met": not replayed or abs(over_emulated - 1) <= WORST_ERROR,
        }


def _paired(job: str, launch: Mapping[str, Result], results: Path) -> Iterator[Row]:
    """A row for each plan with a target, over each stock DDP of its launch."""
    for name in WITH_TARGET:
        for stock in (BEST, STOCK):
            if name not in launch or stock not in launch:
                continue
            planned, other = _blocks(results, job, name), _blocks(results, job, stock)
            interval = median_interval((planned / other).dropna())
            forward = _forward_seconds(results, job)
            target = RATIO_TO_BEST if stock == BEST else RATIO_TO_STOCK
            has_target = _is_replayed(launch[name]) and (stock == BEST or launch[name].model == ONE_BUCKET)
            yield {
                "task": f"{job}, {name} / {stock}",
                **ratio(interval),
                "ratio_without_forward": median_interval(((planned - forward) / (other - forward)).dropna())[1],
                "pairs": len((planned / other).dropna()),
                **_network(launch[name]),
                **conformance(launch[name]),
                "target_ratio": target if has_target else None,
                "met": not has_target or interval[1] <= target,
            }


def _on_several_lanes(job: str, launch: Mapping[str, Result], results: Path) -> Iterator[Row]:
    """A row for each plan on several lanes, over the better contender of its launch on one lane."""
    on_one_lane = {name: _blocks(results, job, name) for name in ("optimal", BEST) if name in launch}
    if len(on_one_lane) < 2:
        return
    better = min(on_one_lane, key=lambda name: float(on_one_lane[name].median()))
    for name in ON_SEVERAL_LANES:
        if name not in launch:
            continue
        result = launch[name]
        testbed = result.settings.get("testbed") or {}
        share = testbed.get("flow_bits_per_second", math.inf) / testbed.get("bits_per_second", math.nan)
        share = min(share, 1.0) if share == share else 1.0
        ratios = (_blocks(results, job, name) / on_one_lane[better]).dropna()
        interval = median_interval(ratios)
        targets = [most for known, most in RATIO_ON_SEVERAL_LANES.items() if math.isclose(known, share, rel_tol=1e-6)]
        target = targets[0] if targets and name == SEARCHED and _is_replayed(result) else None
        yield {
            "task": f"{job}, {name} / better of optimal and {BEST}",
            **ratio(interval),
            "pairs": len(ratios),
            "better": better,
            "share_of_link": share,
            "of_largest_speedup": _of_largest(results, job, result),
            **_network(result),
            **conformance(result),
            "target_ratio": target,
            "met": target is None or interval[1] <= target,
        }


def _of_largest(results: Path, job: str, result: Result) -> float | None:
    """S / S_max, if computation is replayed and a host has one link."""
    file, testbed = results / "emulated" / job / "replay.json", result.settings.get("testbed") or {}
    if not file.is_file() or testbed.get("topology") != ONE_LINK:
        return None
    computation, ranks = Workload.load(file), result.ranks
    speedup = ranks * (computation.forward_seconds + computation.backward_seconds) / result.summary["iteration_seconds"]
    return speedup / largest_speedup(computation, ranks, testbed["bits_per_second"] / 8)


def _is_replayed(result: Result) -> bool:
    return is_replay(str(result.settings.get("model", "")))


def _network(result: Result) -> dict[str, Any]:
    testbed = result.settings.get("testbed") or {}
    return {key: testbed[key] for key in ("topology", "bits_per_second", "dilation") if key in testbed}


def _blocks(results: Path, job: str, name: str) -> pd.Series:
    """Median iteration seconds of each block."""
    path = results / "runs" / "emulated" / job / name / "metrics.csv"
    try:
        return pd.read_csv(path).groupby("block")["iteration_seconds"].median()
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: no blocks can be read: {error}: delete the run and run it again") from None


def _forward_seconds(results: Path, job: str) -> float:
    """Of the replayed workload; 0 if computation is real."""
    file = results / "emulated" / job / "replay.json"
    return Workload.load(file).forward_seconds if file.is_file() else 0.0


def _prediction(path: Path) -> dict[str, Any]:
    prediction = _json(path)
    if not isinstance(prediction.get("iteration_seconds"), float):
        raise InputError(f"{path}: not a prediction: no iteration_seconds: delete it and run again")
    return prediction


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: can't be read: {error}: delete it and run again") from None

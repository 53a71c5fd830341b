"""How fast plans train against stock DDP, and in how much memory; a program of its own.

Targets, on two ranks of this machine: mgwfbp, optimal and fixed_buckets take at most 1.05 times as long as the better
of DDP with its defaults and DDP with the best bucket of a sweep (median of at least 20 pairs, upper 95 % bound 1.10),
and a rank's peak memory is at most 1.1 times DDP's. pipelined, whose messages go on behind the next forward pass, is
not slower (a median of at most 1.00, or an interval of 95 % that holds 1.00). Contenders run in turn in one launch; for
the memory each runs alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from gradsync.benchmarks import command, rows
from gradsync.benchmarks.rows import Row
from gradsync.files.results import Result
from gradsync.statistics.intervals import median_interval

# (model, options): at least 20 blocks of each contender
MODELS = {
    "lenet5": ("--batch", "16", "--block", "6", "--iterations", "144", "--epochs", "4"),
    "resnet50": ("--size", "64", "--batch", "4", "--block", "4", "--iterations", "96", "--conformance", "1"),
}
WITH_TARGET = ("mgwfbp", "optimal", "fixed_buckets")
NOT_SLOWER = "pipelined"
REPORTED = ("dear", "wfbp", "naive", "single")
SCHEDULES = (*WITH_TARGET, NOT_SLOWER, *REPORTED)
STOCK = ("ddp", "ddp_best")
RATIO, RATIO_HIGH, MEMORY = 1.05, 1.10, 1.1
RANKS = 2


def measure(folder: Path, peers: str) -> Row:
    """Run everything below `folder`; rows with ratios, conformance and targets, and whether all were met."""
    measured: list[Row] = []
    for model, options in MODELS.items():
        common = ("--model", model, "--ranks", str(RANKS), "--peers", peers)
        schedules = [part for name in SCHEDULES for part in ("--schedule", name)]
        stock = [part for name in STOCK for part in ("--peer", name)]
        command.run("train", "--output", str(folder / model), *common, *options, *schedules, *stock)
        measured += _speed(model, folder / model)
        measured += _memory(model, folder, (*common, *options))
    return rows.result(measured)


def _blocks(folder: Path, name: str) -> pd.Series:
    """Median iteration seconds of each block."""
    frame = pd.read_csv(folder / name / "metrics.csv")
    return frame.groupby("block").iteration_seconds.median()


def _speed(model: str, folder: Path) -> Iterator[Row]:
    better = min(STOCK, key=lambda name: _blocks(folder, name).median())
    for name in (*SCHEDULES, *STOCK, "no_communication"):
        ratios = (_blocks(folder, name) / _blocks(folder, better)).to_numpy()
        interval = median_interval(ratios)
        target, met = _verdict(name, interval)
        yield {
            "task": f"{model}, {RANKS} ranks, {name} / {better}",
            **rows.ratio(interval),
            "pairs": len(ratios),
            "target_ratio": target,
            "met": target is None or (met and len(ratios) >= 20),
            **rows.conformance(Result.load(folder / name / "result.json")),
        }


def _verdict(name: str, interval: tuple[float | None, float, float | None]) -> tuple[float | None, bool]:
    """(its target, None if it has none; whether the interval of its ratio meets it)"""
    low, middle, high = interval
    if name == NOT_SLOWER:
        return 1.0, middle <= 1 or _within(low, 1)
    return (RATIO, middle <= RATIO and _within(high, RATIO_HIGH)) if name in WITH_TARGET else (None, True)


def _within(end: float | None, bound: float) -> bool:
    """Whether an end of an interval is known and no larger than `bound`."""
    return end is not None and end <= bound


def _memory(model: str, folder: Path, options: tuple[str, ...]) -> Iterator[Row]:
    alone = ("--iterations", "6", "--conformance", "0", "--no-references")  # the last ones of their kind count
    peak = {}
    for kind, name in (("--peer", "ddp"), ("--schedule", "mgwfbp")):
        output = folder / f"{model}-{name}-alone"
        command.run("train", "--output", str(output), *options, *alone, kind, name)
        peak[name] = Result.load(output / name / "result.json").summary["launch_peak_memory_bytes"]
    yield {
        "task": f"{model}, {RANKS} ranks, peak memory of a rank, mgwfbp / ddp",
        "ratio": peak["mgwfbp"] / peak["ddp"],
        "bytes": peak["mgwfbp"],
        "target_ratio": MEMORY,
        "met": peak["mgwfbp"] <= MEMORY * peak["ddp"],
    }

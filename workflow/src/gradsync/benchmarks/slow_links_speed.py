"""How soon local updates reach an accuracy over slow links, against mean gradients; a program of its own.

Target, on an emulated switch of 200 Mbit/s (the slowest links that are emulated): local SGD and DiLoCo take at most
half as long to a test error of 5 % as `optimal`, the best plan for mean gradients, with the same optimizer. Four hosts
train LeNet-5 on digits from the same seeds, each until it gets there. Mean gradients that do not get there in time
count with all of their time, which is less than they take.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gradsync.benchmarks import command, rows
from gradsync.benchmarks.rows import Row
from gradsync.files.results import Result
from gradsync.statistics.intervals import median_interval
from gradsync.testbed import privileges

RANKS = 4
RATE = 2e8  # bits per second of a link
SEEDS = range(6)
ITERATIONS, SEGMENT = 200, 20  # of a training at the most; between two tests, whole periods
ERROR = 0.05
MOST = 0.5  # of the time that mean gradients take
SECONDS = f"seconds_least_to_{ERROR:g}"


class Method(NamedTuple):
    """Local updates: a schedule, the iterations between two sums, and the optimizer's options of a plan."""

    schedule: str
    period: int
    optimizer: tuple[str, ...]


METHODS = (
    Method("local_sgd", 10, ("--lr", "0.02", "--momentum", "0.9")),
    Method("diloco", 20, ("--optimizer", "adamw", "--lr", "0.001")),
)
DENSE = "optimal"


def measure(folder: Path) -> Row:
    """A row for each method of local updates, and whether all met; what is written lies below `folder`.

    Raises InputError if no testbed can be made, and SystemExit if the command has run again (`privileges.enter`).
    """
    privileges.enter()
    workload = folder / "workload.json"
    command.run("measure", "layers", "--model", "lenet5", "--output", str(workload))
    for method in METHODS:
        own = folder / method.schedule
        local = (*method.optimizer, "--update-option", f"period={method.period}")
        plans = _planned(DENSE, method.optimizer, workload, own), _planned(method.schedule, local, workload, own)
        course = ("--iterations", ITERATIONS, "--epochs", ITERATIONS, "--segment", SEGMENT, "--target-error", ERROR)
        where = ("--testbed", "switch", "--rate", RATE, "--output", own)
        options = (*course, "--stop-at-target", "--seed", *SEEDS, *where)
        command.run("elastic", "--plan", str(plans[0]), "--plan", str(plans[1]), *map(str, options))
    return rows.result(list(compared(folder)))


def compared(folder: Path) -> Iterator[Row]:
    """The rows, of the results of all methods below a folder."""
    for method in METHODS:
        dense, result = (
            Result.load(folder / method.schedule / each / "result.json") for each in (DENSE, method.schedule)
        )
        interval = median_interval(np.array(result.samples[SECONDS]) / np.array(dense.samples[SECONDS]))
        optimizer = "AdamW" if "adamw" in method.optimizer else "SGD with momentum"
        yield {
            "task": f"LeNet-5, {RANKS} hosts, {RATE / 1e6:g} Mbit/s, to an error of {ERROR:g}: {method.schedule} / "
            f"{DENSE}, {optimizer}",
            **rows.ratio(interval),
            "pairs": len(result.samples[SECONDS]),
            "reached": f"seconds_to_{ERROR:g}" in result.samples,
            "dense_reached": f"seconds_to_{ERROR:g}" in dense.samples,
            "seconds": result.summary[SECONDS],
            "dense_seconds": dense.summary[SECONDS],
            "iteration_seconds": result.summary["iteration_seconds"],
            "dense_iteration_seconds": dense.summary["iteration_seconds"],
            "accuracy": result.summary["accuracy"],
            "dense_accuracy": dense.summary["accuracy"],
            "target_ratio": MOST,
            "met": f"seconds_to_{ERROR:g}" in result.samples and interval[1] <= MOST,
        }


def _planned(schedule: str, options: tuple[str, ...], workload: Path, folder: Path) -> Path:
    plan = folder / f"{schedule}.json"
    cost = f"alpha=1e-4,bandwidth={RATE / 8:g}"
    common = ("--workload", str(workload), "--allreduce", cost, "--ranks", str(RANKS), "--output", str(plan))
    command.run("plan", "--schedule", schedule, *options, *common)
    return plan

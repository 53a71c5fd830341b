"""How many updates a second a centre takes in shared memory without a lock, against a master that serves in turn.

Target, LeNet-5 on this machine, from one, two and four workers: the centre of Hogwild EASGD takes at least as many
updates a second as the master of Async EASGD, and more from four workers on. Samples are few, so that workers wait for
the centre and not for their computation. Both train in launches of their own, in turn (A B B A), and the last segment
of each counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gradsync.benchmarks import command, rows
from gradsync.benchmarks.rows import Row
from gradsync.files.results import Result
from gradsync.statistics.intervals import median_interval, repeats_needed

WORKERS = (1, 2, 4)
MORE_FROM = 4  # workers
METHODS = {"hogwild_easgd": 0, "async_easgd": 1}  # masters of each
BATCH, ITERATIONS, SEGMENT = 4, 24, 12


def measure(folder: Path) -> Row:
    """A row for each number of workers, and whether all met; what is written lies below `folder`."""
    workload = folder / "workload.json"
    command.run("measure", "layers", "--model", "lenet5", "--batch", str(BATCH), "--output", str(workload))
    return rows.result([_row(count, dict(_rates(count, workload, folder))) for count in WORKERS])


def _rates(count: int, workload: Path, folder: Path) -> Iterator[tuple[str, list[float]]]:
    """Updates a second of each method, launch by launch."""
    plans = {method: _planned(method, count + master, workload, folder) for method, master in METHODS.items()}
    rates: dict[str, list[float]] = {method: [] for method in plans}
    for pair in range(repeats_needed()):
        for method in list(plans)[:: 1 if pair % 2 == 0 else -1]:
            output = folder / f"{count}-{pair}"
            course = ("--iterations", ITERATIONS, "--epochs", ITERATIONS, "--segment", SEGMENT, "--batch", BATCH)
            options = map(str, ("--plan", plans[method], "--conformance", 0, *course, "--output", output))
            command.run("elastic", *options)
            result = Result.load(output / method / "result.json")
            rates[method].append(count / result.samples["iteration_seconds"][-1])
    yield from rates.items()


def _row(count: int, rates: dict[str, list[float]]) -> Row:
    hogwild, served = (np.array(rates[method]) for method in METHODS)
    low, middle, high = median_interval(hogwild / served)
    more = count >= MORE_FROM
    return {
        "task": f"LeNet-5, {count} worker{'s' * (count > 1)}: updates a second of Hogwild EASGD / Async EASGD",
        **rows.ratio((low, middle, high)),
        "pairs": len(hogwild),
        "updates_per_second": float(np.median(hogwild)),
        "other_updates_per_second": float(np.median(served)),
        "target_least_ratio": 1.0,
        "met": (low is not None and low > 1) if more else middle >= 1,
    }


def _planned(method: str, ranks: int, workload: Path, folder: Path) -> Path:
    plan = folder / f"{method}-{ranks}.json"
    common = (
        "--workload",
        str(workload),
        "--unpredicted",
        "--allreduce",
        "alpha=0,bandwidth=1e9",
        "--output",
        str(plan),
    )
    command.run("plan", "--schedule", method, "--ranks", str(ranks), *common)
    return plan

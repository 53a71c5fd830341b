"""What the workflow costs above its bare commands, and how fast it sees that nothing is to be done; run by itself.

Targets: 2 s per job above the same command without Snakemake, its own start included; 20 s for a run of the full
configuration in which everything is up to date. Both run in a copy of the project made of links.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradsync.benchmarks import rows
from gradsync.errors import RunError
from gradsync.lifetimes import lifeline

PAIRS = 4
SECONDS_PER_JOB, SECONDS_OF_NOTHING = 2.0, 20.0
# Each is a job: a command, and all that it makes.
JOBS = (("table", "table2"), ("table", "timelines"), ("figure", "fig1", "fig2", "fig3", "fig4", "counterexample"))
ENDING = {"table": "tables/mgwfbp/{}.csv", "figure": "figures/mgwfbp/{}.svg"}
PARTS = ("Snakefile", "config", "reports", "workflow")


def measure(project: Path, folder: Path) -> dict[str, Any]:
    """Medians and their targets; `folder` is empty and is filled. Raises RunError if a command fails."""
    for name in PARTS:
        (folder / name).symlink_to((project / name).resolve())
    above = [_above(folder, first_bare=pair % 2 == 0) for pair in range(PAIRS)]
    job, nothing = float(np.median(above)), _nothing_to_do(folder)
    return rows.result(
        [
            _row("a job above its bare command", job, SECONDS_PER_JOB),
            _row("the full configuration, nothing to be done", nothing, SECONDS_OF_NOTHING),
        ]
    )


def _row(task: str, seconds: float, target: float) -> rows.Row:
    return rows.timed(task, {"seconds": seconds}, seconds / target, target)


def _above(folder: Path, first_bare: bool) -> float:
    """Seconds per job that the workflow takes longer than the commands one by one."""
    targets = [f"results/quick/{ENDING[what].format(ids[0])}" for what, *ids in JOBS]

    def bare() -> float:
        return sum(_run(folder, "gradsync", what, "mgwfbp", *ids, "--results", "bare") for what, *ids in JOBS)

    def workflow() -> float:
        return _run(folder, "snakemake", "--cores", "1", "--forceall", *targets)

    if first_bare:
        alone, managed = bare(), workflow()
    else:
        managed, alone = workflow(), bare()
    return (managed - alone) / len(JOBS)


def _nothing_to_do(folder: Path) -> float:
    """Seconds of a run of the full configuration in which every output is there and up to date."""
    options = ("--cores", "1", "--configfile", "config/full.yaml")
    # the files that there would be, although nothing was run: one per line, after a line of headings
    summary = _output(folder, "snakemake", *options, "--summary").splitlines()[1:]
    for line in summary:
        file = folder / line.split("\t")[0]
        if file.is_relative_to(folder / "config"):  # a link to the project's own
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    unneeded = "--omit-from", "cluster_profile"
    _output(folder, "snakemake", *options, "--touch", "--no-hooks", *unneeded)  # hooks would miss the data
    start = time.perf_counter()
    output = _output(folder, "snakemake", *options, *unneeded)
    seconds = time.perf_counter() - start
    if "Nothing to be done" not in output:
        raise RunError("benchmark workflow: a run in which all is up to date did something")
    return seconds


def _run(folder: Path, *command: str) -> float:
    start = time.perf_counter()
    _output(folder, *command)
    return time.perf_counter() - start


def _output(folder: Path, *command: Sequence[str] | str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SNAKEMAKE")}
    ended = subprocess.run(
        [sys.executable, "-m", *map(str, command)],
        cwd=folder,
        env=lifeline.led(environment),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    if ended.returncode:
        raise RunError(f"benchmark workflow: {' '.join(map(str, command))} failed: {ended.stdout.strip()[-500:]}")
    return ended.stdout

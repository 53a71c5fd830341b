"""How long simulating one BML all-reduce takes, from 16 servers to 65,536, and the symbolic check of 256; a program.

Each size runs in a process of its own, so that its peak memory is its own; what the process had before, Python and
NumPy, is counted too. Targets: 65,536 servers (BCube(16,4)) in 10 s and 4 GB, the check of BCube(4,4) in 10 s, and
seconds that grow with the transfers to a power of at most 1.15. That power is the slope of a straight line through the
logarithms of both, over the sizes with transfers enough for the fixed cost of a round not to count.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from gradsync import topologies
from gradsync.benchmarks.rows import Row, timed
from gradsync.errors import RunError
from gradsync.lifetimes import lifeline
from gradsync.rounds import flow_level, symbolic
from gradsync.topologies import Speeds

CUBES = ("4,2", "8,2", "4,3", "16,2", "4,4", "32,2", "8,4", "16,3", "32,3", "16,4")
LARGEST, CHECKED = "16,4", "4,4"
SECONDS, BYTES, POWER = 10.0, 4e9, 1.15
MANY_TRANSFERS = 100_000
REPEATS = 3  # the quickest counts; what takes more than a second runs once


def rows() -> list[Row]:
    """A row per size, then the power and the check; `ratio` is what was measured over its target (below 1: met)."""
    measured = [_in_a_process("simulate", cube) for cube in CUBES]
    of_sizes = [
        _row(
            f"BML all-reduce simulated, {each['servers']} servers, BCube({cube})",
            each,
            SECONDS if cube == LARGEST else None,
        )
        for cube, each in zip(CUBES, measured, strict=True)
    ]
    transfers, seconds = ([each[key] for each in measured] for key in ("transfers", "seconds"))
    power = slope(transfers, seconds, MANY_TRANSFERS)
    largest = measured[CUBES.index(LARGEST)]
    checked = _in_a_process("check", CHECKED)
    return [
        *of_sizes,
        {
            "task": f"memory of the largest, {largest['servers']} servers",
            "peak_bytes": largest["peak_bytes"],
            "target_bytes": BYTES,
            "ratio": largest["peak_bytes"] / BYTES,
            "met": largest["peak_bytes"] < BYTES,
        },
        {
            "task": f"power of the transfers that seconds grow with, from {MANY_TRANSFERS} transfers on",
            "power": power,
            "power_of_all_sizes": slope(transfers, seconds),
            "target_power": POWER,
            "ratio": power / POWER,
            "met": power < POWER,
        },
        _row(f"BML checked symbolically, {checked['servers']} servers, BCube({CHECKED})", checked, SECONDS),
    ]


def slope(transfers: list[int], seconds: list[float], least: int = 1) -> float:
    """Of log(seconds) over log(transfers), by least squares, over the sizes with at least so many transfers."""
    counted = np.array(transfers) >= least
    return float(np.polyfit(np.log(np.array(transfers)[counted]), np.log(np.array(seconds)[counted]), 1)[0])


def _row(task: str, measured: dict[str, Any], target: float | None) -> Row:
    return timed(task, measured, measured["seconds"] / (target or SECONDS), target)


def _in_a_process(task: str, cube: str) -> dict[str, Any]:
    """Servers, transfers, seconds and peak bytes."""
    command = [sys.executable, "-m", __name__, task, cube]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=lifeline.led(os.environ))
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or [f"exit status {ended.returncode}"]
        raise RunError(f"benchmark: {task} BCube({cube}): {lines[-1]}")
    return dict(json.loads(ended.stdout))


def _measured(task: str, cube: str) -> dict[str, Any]:
    topology = topologies.parse(f"bcube:{cube}")
    transfers, best = 0, float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        if task == "check":
            symbolic.verify("bml", topology.shape)
        else:
            transfers = flow_level.cost("bml", topology, Speeds()).transfers
        best = min(best, time.perf_counter() - start)
        if best > 1.0:
            break
    known = {"transfers": transfers} if transfers else {}
    return {"servers": topology.hosts, **known, "seconds": best, "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Of this process since its program began."""
    status = Path("/proc/self/status")
    if status.is_file():  # on other systems the parent's memory when it started this process may count too
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


if __name__ == "__main__":
    print(json.dumps(_measured(*sys.argv[1:])))

"""What emulated links carry, how much BML gains on them, and how near predictions come; a program of its own.

Targets of the links: transfers of 16 MiB get at least 0.93 of the configured rate (the headers of packets leave 0.956),
and what they get in several testbeds lies within 2 %. Those of BML and of emulated training: `bml_speed.py` and
`emulated_runs.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gradsync import topologies
from gradsync.benchmarks import bml_speed, emulated_runs
from gradsync.errors import RunError
from gradsync.files.results import machine
from gradsync.runtime.launch import room_for
from gradsync.testbed import privileges
from gradsync.testbed.check import TARGET_SHARE, check

LINK_RATES = (2e8, 4e8)  # bits per second
TESTBEDS = 3  # of each rate, in turn
TARGET_SPREAD = 1.02  # largest median over the smallest


def measure(folder: Path, config: str, results: Path) -> dict[str, Any]:
    """Rows of links, of BML beside a parameter server and of the emulated runs in `results`, and whether all met.

    Ranks write to `folder`. Raises InputError if no testbed can be made, or the machine can't hold nine ranks, and
    SystemExit where the command has run again (`privileges.enter`).
    """
    privileges.enter()
    room_for(topologies.parse(bml_speed.SERVER.topology).hosts, "benchmark testbed")
    trained, notes = emulated_runs.rows(results)  # first: a broken file is told before minutes of work
    for note in notes:
        _say(note)
    carried = links()
    compared = bml_speed.comparison(bml_speed.in_turn(folder, config))
    print(bml_speed.table(compared), file=sys.stderr, flush=True)
    rows = [*carried, *compared, bml_speed.crossing(compared), *trained]
    return {"rows": rows, "notes": notes, "met": all(row["met"] for row in rows), "machine": machine()}


def _say(text: str) -> None:
    print(f"benchmark testbed: {text}", file=sys.stderr, flush=True)


def links() -> list[dict[str, Any]]:
    """Two rows a rate, from testbeds of both in turn."""
    medians: dict[float, list[float]] = {rate: [] for rate in LINK_RATES}
    for number in range(TESTBEDS):
        for rate in LINK_RATES:
            found = check(rate)
            if not found["possible"]:
                raise RunError(f"benchmark testbed: {found['reason']}")
            shares = [link["share_of_rate"] for link in found["links"]]
            told = " and ".join(f"{share:.4f}" for share in shares)
            _say(f"links of {rate / 1e6:g} Mbit/s, testbed {number + 1} of {TESTBEDS}: {told} of their rate")
            medians[rate] += shares
    return [row for rate, shares in medians.items() for row in link_rows(rate, shares)]


def link_rows(bits_per_second: float, shares: Sequence[float]) -> list[dict[str, Any]]:
    """The share of the rate that transfers get, and how well it repeats, from a median a link and testbed."""
    least, most = min(shares), max(shares)
    task = f"16 MiB over links of {bits_per_second / 1e6:g} Mbit/s, {len(shares)} medians"
    return [
        {
            "task": f"{task}: least share of the rate",
            "ratio": least,
            "median_share": float(np.median(shares)),
            "target_ratio": TARGET_SHARE,
            "met": least >= TARGET_SHARE,
        },
        {
            "task": f"{task}: largest over smallest",
            "ratio": most / least,
            "target_ratio": TARGET_SPREAD,
            "met": most / least <= TARGET_SPREAD,
        },
    ]

"""What emulated links carry, how much BML gains on them, and how near predictions come; a program of its own.

Targets of the links: transfers of 16 MiB get at least 0.93 of the configured rate (the headers of packets leave 0.956),
and what they get in several testbeds lies within 2 %. Those of BML and of emulated training: `bml_speed.py` and
`emulated_runs.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from gradsync import topologies
from gradsync.benchmarks import bml_speed, emulated_runs, rows
from gradsync.benchmarks.rows import Row
from gradsync.errors import RunError
from gradsync.runtime.launch import room_for
from gradsync.testbed import privileges
from gradsync.testbed.check import TARGET_SHARE, check

LINK_RATES = (2e8, 4e8)  # bits per second
TESTBEDS = 3  # of each rate, in turn
TARGET_SPREAD = 1.02  # largest median over the smallest


def measure(folder: Path, config: str, results: Path) -> Row:
    """Rows of links, of BML against a parameter server and of the emulated runs in `results`, and whether all met.

    Ranks write to `folder`. Raises InputError if no testbed can be made, or the machine can't hold nine ranks, and
    SystemExit if the command has run again (`privileges.enter`).
    """
    privileges.enter()
    room_for(topologies.parse(bml_speed.SERVER.topology).hosts, "benchmark testbed")
    of_runs, notes = emulated_runs.rows(results)  # first: a broken file is refused before minutes of work
    for note in notes:
        _say(note)
    of_links = links()
    compared = bml_speed.comparison(bml_speed.in_turn(folder, config))
    print(bml_speed.table(compared), file=sys.stderr, flush=True)
    return rows.result([*of_links, *compared, bml_speed.crossing(compared), *of_runs], notes=notes)


def _say(text: str) -> None:
    print(f"benchmark testbed: {text}", file=sys.stderr, flush=True)


def links() -> list[Row]:
    """Two rows per rate, from testbeds of both rates in turn."""
    medians: dict[float, list[float]] = {rate: [] for rate in LINK_RATES}
    for number in range(TESTBEDS):
        for rate in LINK_RATES:
            outcome = check(rate)
            if not outcome["possible"]:
                raise RunError(f"benchmark testbed: {outcome['reason']}")
            shares = [link["share_of_rate"] for link in outcome["links"]]
            listed = " and ".join(f"{share:.4f}" for share in shares)
            _say(f"links of {rate / 1e6:g} Mbit/s, testbed {number + 1} of {TESTBEDS}: {listed} of their rate")
            medians[rate] += shares
    return [row for rate, shares in medians.items() for row in link_rows(rate, shares)]


def link_rows(bits_per_second: float, shares: Sequence[float]) -> list[Row]:
    """The share of the rate that transfers get, and how well it repeats, from one median per link and testbed."""
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

"""`gradsync estimate`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import configured


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Estimate what a configuration will cost on a cluster, from its models and stated assumptions: GPU hours."""
    from gradsync.measure import gpu_hours

    settings, _ = configured.load(options)
    launches = gpu_hours.estimate(settings)
    if options.json:
        total = sum(launch.gpu_hours for launch in launches)
        return {"launches": [launch._asdict() for launch in launches], "gpu_hours": total}
    assumed = settings.estimate
    print(gpu_hours.table(launches))
    print(
        f"assumed: {assumed.teraflops:g} TFLOP/s and {assumed.gigabits:g} Gbit/s a rank, nothing overlaps, "
        f"{assumed.startup_seconds:g} s of start-up a job (`estimate` in {options.config}); profiles of the network "
        "and the cluster come on top"
    )
    return None

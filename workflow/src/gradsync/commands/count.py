"""`gradsync count`."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gradsync import names
from gradsync.commands import configured

OPERATIONS_A_SECOND = 1e12  # of a model that is no launch: papers scale its times to what their testbeds compute


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument("name", nargs="+", help="launches of `training` and `elastic` (lenet5-2), models (one sample)")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Count the operations of models, or of launches of a configuration, and write their workloads; nothing is run."""
    from gradsync.files.results import write_whole
    from gradsync.measure import operations

    settings, results = configured.load(options)
    launches: dict[str, Any] = {launch.job: launch for launch in settings.training}
    launches |= {launch.job: launch for launch in settings.elastic}
    for name in options.name:
        names.refuse_unknown("launch or model", name, [*launches, *names.MODELS])
    written = []
    for number, name in enumerate(options.name, 1):
        print(f"counting {number}/{len(options.name)}: {name}", file=sys.stderr, flush=True)
        if launch := launches.get(name):
            rate = 1e12 * settings.estimate.teraflops
            workload = operations.workload(launch.model, rate, launch.batch, launch.size)
        else:
            workload = operations.workload(name, OPERATIONS_A_SECOND, 1, None)
        path = results / "counted" / name / "workload.json"
        write_whole(path, workload.to_json())
        written.append(str(path))
    return {"written": written}

"""How much computation of a model and messages of its sizes slow one another down."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option
from gradsync.configuration.training import Compute, OnDevice
from gradsync.experiments.hosts import described, enter
from gradsync.experiments.profile import launches


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, OnDevice, Compute):
    """Options of `gradsync measure interference`."""

    ranks: int = option(1, "ranks that compute and send at the same time, at least 2", metavar="N", silent=True)
    workload: str = option(meaning="messages from its smallest gradient to all of them at once", metavar="W.json")
    output: Path = option(meaning="write the factors, JSON", metavar="FILE")


def measure(options: Options) -> Path | None:
    """Write the factors and return their file; None in a rank, which takes part in the measurement.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.plan.workload import Workload
    from gradsync.runtime import models
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("interference", [options.ranks], options.device)
    launches.refuse_counts(batch=options.batch)
    models.refuse(options.model, options.size, options.batch)
    testbed = described(options, [options.ranks], options.device)
    launches.refuse_output(options.output)
    Workload.load(options.workload)  # what is wrong with it is told once
    enter(options)
    launches.start("interference", options, options.ranks, testbed)
    return options.output


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import interference
    from gradsync.plan.workload import Workload
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    with process_group(device=options.device) as (rank, _):
        device = devices.pick(options.device)
        workload = Workload.load(options.workload)
        factors = interference.measure(workload, options.model, options.batch, size=options.size, device=device)
        if rank == 0:
            write_whole(options.output, factors.to_json())

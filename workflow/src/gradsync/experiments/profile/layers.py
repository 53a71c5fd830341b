"""Layer times of a model, on one rank or several at the same time: a workload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradsync.configuration.options import option
from gradsync.configuration.training import Compute, OnDevice
from gradsync.experiments.profile import launches


@dataclass(frozen=True, kw_only=True)
class Options(OnDevice, Compute):
    """Options of `gradsync measure layers`."""

    ranks: int = option(1, "ranks that compute at the same time", metavar="N")
    iterations: int = option(20, "iterations that are timed", metavar="N")
    output: Path = option(meaning="write the workload, JSON", metavar="FILE")


def measure(options: Options) -> Path | None:
    """Write the workload and return its file; None in a rank, which takes part in the measurement.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.runtime import models
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("layers", [options.ranks], options.device, least=1)
    launches.refuse_counts(batch=options.batch, iterations=options.iterations)
    models.refuse(options.model, options.size, options.batch)
    launches.refuse_output(options.output)
    launches.start("layers", options, options.ranks)
    return options.output


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import layers
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    with process_group(device=options.device) as (rank, _):
        device = devices.pick(options.device)
        workload = layers.measure(options.model, options.batch, options.iterations, size=options.size, device=device)
        if rank == 0:
            write_whole(options.output, workload.to_json())

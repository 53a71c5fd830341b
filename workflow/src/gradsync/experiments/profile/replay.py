"""What a replayed workload really computes: the time of its update, on ranks at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option
from gradsync.experiments.hosts import described, enter
from gradsync.experiments.profile import launches


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed):
    """Options of `gradsync measure replay`."""

    workload: str = option(meaning="what is replayed", metavar="W.json")
    ranks: int = option(1, "ranks that update at the same time, at least 2", metavar="N", silent=True)
    iterations: int = option(20, "updates that are timed", metavar="N")
    output: Path = option(meaning="write the workload with the time of its update, JSON", metavar="FILE")


def measure(options: Options) -> Path | None:
    """Write the workload with the time of its update and return its file; None in a rank, which takes part.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.plan.workload import Workload
    from gradsync.runtime import models
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("replay", [options.ranks], "cpu")
    launches.refuse_counts(iterations=options.iterations)
    models.build(_model(options), 0)
    testbed = described(options, [options.ranks])
    launches.refuse_output(options.output)
    Workload.load(options.workload)
    enter(options)
    launches.start("replay", options, options.ranks, testbed)
    return options.output


def _model(options: Options) -> str:
    from gradsync.runtime.replay import PREFIX

    return f"{PREFIX}{options.workload}"


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import replayed
    from gradsync.runtime.group import process_group

    with process_group() as (rank, _):
        workload = replayed.measure(_model(options), options.iterations)
        if rank == 0:
            write_whole(options.output, workload.to_json())

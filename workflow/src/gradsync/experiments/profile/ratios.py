"""What the ratios of LARS and LAMB take on every rank, and dealt to ranks and gathered (PTO)."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync.configuration.options import option
from gradsync.configuration.training import OnDevice
from gradsync.errors import InputError
from gradsync.experiments.profile import launches
from gradsync.limits import MOST_COUNT

if TYPE_CHECKING:
    from gradsync.costs.ratio_times import RatioTimes
    from gradsync.plan.workload import Workload


@dataclass(frozen=True, kw_only=True)
class Options(OnDevice):
    """Options of `gradsync measure ratios`."""

    workload: str = option(meaning="tensors, of gradsync measure operations or layers", metavar="W.json")
    ranks: int = option(1, "ranks that they are dealt to, at least 2", metavar="N", silent=True)
    optimizer: tuple[str, ...] = option(("lars", "lamb"), "whose ratios", metavar="NAME")
    rounds: int = option(8, "rounds; fewer than 6 have no interval", metavar="N", least=1, most=MOST_COUNT)
    iterations: int = option(3, "iterations of a round that are timed", metavar="N", least=1, most=MOST_COUNT)
    output: Path = option(meaning="write the times, JSON", metavar="FILE")


def measure(options: Options) -> RatioTimes | None:
    """Time both in turn between ranks, and write the times; None in a rank.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.costs.ratio_times import RatioTimes
    from gradsync.files.results import write_whole
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("ratios", [options.ranks], options.device)
    launches.refuse_counts(rounds=options.rounds, iterations=options.iterations)
    workload = _workload(options)
    launches.refuse_output(options.output)
    tensors = f"{len(workload.layers)} tensors of {workload.name}"
    print(f"measure ratios: {options.ranks} ranks, {tensors}", file=sys.stderr)
    launches.start("ratios", options, options.ranks)
    times = RatioTimes.load(options.output)
    notes = launches.shared_cores(options.device, options.ranks, times.provenance["cores"])
    times = times.model_copy(update={"notes": tuple(notes)})
    write_whole(options.output, times.to_json())
    return times


def _workload(options: Options) -> Workload:
    """Its tensors; raises InputError for what has no ratios, or for tensors of an unknown type."""
    from gradsync.measure import ratios
    from gradsync.plan.workload import Workload

    workload = Workload.load(options.workload)
    if not options.optimizer or len({*options.optimizer}) < len(options.optimizer):
        raise InputError("--optimizer: name each once")
    for name in options.optimizer:
        ratios.alone(workload, name, options.ranks, dealt=True)
    return workload


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import ratios
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    with process_group(device=options.device) as (rank, _):
        counts = {"rounds": options.rounds, "iterations": options.iterations}
        device = devices.pick(options.device)
        times = ratios.measure(_workload(options), options.optimizer, **counts, device=device)
        if rank == 0:
            write_whole(options.output, times.to_json())

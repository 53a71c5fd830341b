"""Times of several all-reduces at once, each on a lane of its own."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option
from gradsync.configuration.training import OnDevice
from gradsync.errors import InputError
from gradsync.experiments.hosts import described, enter
from gradsync.experiments.profile import launches
from gradsync.experiments.profile.messages import Messages
from gradsync.limits import LEAST_LANES

if TYPE_CHECKING:
    from gradsync.costs.contention_fit import Fit
    from gradsync.costs.contention_points import Contention


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, OnDevice, Messages):
    """Options of `gradsync measure contention`."""

    ranks: int = option(1, "ranks that send, at least 2", metavar="N", silent=True)
    lanes: int = option(2, "up to so many messages at once", metavar="K")
    workload: str | None = option(
        None,
        "messages from its smallest gradient to half of all of them, whatever --smallest and --largest are",
        metavar="W.json",
    )
    output: Path = option(meaning="write the points, JSON", metavar="FILE")

    def sizes(self) -> tuple[int, int]:
        """As of other messages; two at once are no larger than all gradients."""
        smallest, largest = super().sizes()
        return smallest, max(largest // 2, smallest + 4) if self.workload else largest


class Measured(NamedTuple):
    """The times, and the model that was fitted to them."""

    contention: Contention
    fit: Fit


def measure(options: Options) -> Measured | None:
    """Measure and write the points; None in a rank.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.costs.contention_points import Contention
    from gradsync.files.results import write_whole
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("contention", [options.ranks], options.device)
    launches.refuse_counts(smallest=options.smallest, largest=options.largest)
    if options.lanes < LEAST_LANES:
        raise InputError(
            f"--lanes {options.lanes}: at least {LEAST_LANES}; gradsync measure allreduce measures one message"
        )
    testbed = described(options, [options.ranks], options.device, options.lanes)
    launches.refuse_output(options.output)
    smallest, largest = options.sizes()
    enter(options)
    sizes = f"{smallest} to {largest} B"
    print(f"measure contention: {options.ranks} ranks, 1 to {options.lanes} messages at once, {sizes}", file=sys.stderr)
    sized = replace(options, smallest=smallest, largest=largest, workload=None)
    launches.start("contention", sized, options.ranks, testbed)
    contention = Contention.load(options.output)
    if testbed:
        provenance = {**contention.provenance, "testbed": testbed.describe()}
        contention = contention.model_copy(update={"provenance": provenance})
        write_whole(options.output, contention.to_json())
    return Measured(contention, contention.fit(str(options.output)))


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import contention
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    with process_group(device=options.device) as (rank, _):
        device = devices.pick(options.device)
        times = contention.measure(options.smallest, options.largest, options.lanes, device)
        if rank == 0:
            write_whole(options.output, times.to_json())

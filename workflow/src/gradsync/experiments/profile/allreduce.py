"""Times of all-reduces, and of other kinds, of many message sizes between one or several numbers of ranks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option
from gradsync.configuration.training import OnDevice
from gradsync.errors import InputError
from gradsync.experiments.hosts import described, enter
from gradsync.experiments.profile import launches
from gradsync.experiments.profile.kinds import Kinds
from gradsync.experiments.profile.messages import Messages
from gradsync.lifetimes import leftovers

if TYPE_CHECKING:
    from gradsync.measure.allreduce import AllReducePoint


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, OnDevice, Kinds, Messages):
    """Options of `gradsync measure allreduce`."""

    ranks: tuple[int, ...] = option(
        (1,), "numbers of ranks, at least 2 each; one launch for each number", metavar="N", silent=True
    )
    collective: tuple[str, ...] = option(
        ("native",), "native, the backend's own; bml, bml@bcube:3,2", metavar="NAME[@TOPOLOGY]"
    )
    by_layer: bool = option(
        False,
        "with --workload: collectives but native carry single gradients, so no larger message of them is measured",
    )
    output: Path = option(meaning="write the points, CSV", metavar="FILE")

    def refuse_by_layer(self) -> None:
        """Raises InputError for --by-layer without the layers."""
        if self.by_layer and not self.workload:
            raise InputError("--by-layer: --workload is needed: its largest layer is the largest message")


class Measured(NamedTuple):
    """The points of all launches, what a reader must know, and what they were measured with."""

    points: list[AllReducePoint]
    notes: list[str]
    provenance: dict[str, Any]


def measure(options: Options) -> Measured | None:
    """Measure one launch for each number of ranks and write all points into one file; None in a rank.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.files.results import write_whole
    from gradsync.measure import allreduce
    from gradsync.runtime.launch import is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("allreduce", options.ranks, options.device)
    launches.refuse_counts(smallest=options.smallest, largest=options.largest)
    refuse_collectives(options.collective, options.ranks, options.device)
    described(options, options.ranks, options.device)
    launches.refuse_output(options.output)
    options.refuse_by_layer()
    options.refuse_kinds(options.ranks, options.collective)
    smallest, largest = options.sizes()
    enter(options)
    sized = replace(
        options, smallest=smallest, largest=largest, workload=options.workload if options.by_layer else None
    )
    measured = _launched(sized)
    provenance = {**measured.provenance, "notes": measured.notes}
    write_whole(options.output, allreduce.to_csv(measured.points, provenance))
    return measured


def refuse_collectives(collectives: Sequence[str], numbers_of_ranks: Sequence[int], device: str) -> None:
    """Raises InputError for collectives that don't exist, or that can't run there."""
    from gradsync.measure import allreduce

    for scheme in map(allreduce.collective, collectives):
        scheme.refuse_device(device)
        for ranks in numbers_of_ranks:
            scheme.refuse_ranks(ranks)


def _launched(options: Options) -> Measured:
    from gradsync.files.writing import make_folder
    from gradsync.runtime.launch import elsewhere

    measured = Measured([], [], {})
    # rank 0 may write on another machine
    shared = make_folder(options.output.parent) if elsewhere() else None
    with leftovers.temporary_folder(shared) as folder:
        for ranks in options.ranks:
            sizes = f"{options.smallest} to {options.largest} B"
            print(f"measure allreduce: {ranks} ranks, {sizes}", file=sys.stderr)
            times = folder / f"{ranks}.json"
            testbed = described(options, [ranks], options.device)
            launches.start("allreduce", replace(options, ranks=(ranks,), output=times), ranks, testbed)
            content = json.loads(times.read_text())
            measured.points.extend(points(content, ranks))
            measured.provenance[f"threads, {ranks} ranks"] = content["provenance"].pop("threads")
            measured.provenance.update(content["provenance"])
            if testbed:
                measured.provenance["testbed"] = testbed.describe()
            measured.notes.extend(launches.shared_cores(options.device, ranks, measured.provenance["cores"]))
    return measured


def points(content: dict[str, Any], ranks: int) -> Iterable[AllReducePoint]:
    """The points of the times that rank 0 has written, one for each message size and collective."""
    from gradsync.measure import allreduce

    for collective, times in content["seconds"].items():
        for size, seconds in times.items():
            yield allreduce.point(ranks, int(size), seconds, collective)
    for kind, times in content.get("kinds", {}).items():
        for size, seconds in times.items():
            yield allreduce.point(ranks, int(size), seconds, kind=kind)


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import allreduce
    from gradsync.plan.workload import Workload
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    options.refuse_by_layer()
    with process_group(device=options.device) as (rank, ranks):
        device = devices.pick(options.device)
        largest = options.largest  # of collectives that are not the backend's own
        if options.by_layer and options.workload:
            largest = max(layer.bytes for layer in Workload.load(options.workload).layers)
        times = allreduce.measure(
            options.smallest,
            options.largest,
            device,
            options.collective,
            largest,
            of_kinds=options.kind,
            axes=options.mesh(ranks),
        )
        if rank == 0:
            write_whole(options.output, json.dumps(times))

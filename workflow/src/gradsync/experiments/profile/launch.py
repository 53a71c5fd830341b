"""All that a launch is planned from, in one start of its ranks: layers, all-reduces, interference."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.configuration.on_testbed import OnTestbed
from gradsync.configuration.options import option
from gradsync.configuration.training import Compute, OnDevice
from gradsync.experiments.hosts import described, enter
from gradsync.experiments.profile import launches
from gradsync.experiments.profile.allreduce import points, refuse_collectives
from gradsync.experiments.profile.kinds import Kinds
from gradsync.experiments.profile.messages import span
from gradsync.lifetimes import leftovers

if TYPE_CHECKING:
    from gradsync.runtime.devices import Device

WRITTEN = ("workload.json", "allreduce.csv", "interference.json")
RAW = ("workload.json", "allreduce.json", "interference.json")  # as rank 0 writes them


@dataclass(frozen=True, kw_only=True)
class Options(OnTestbed, OnDevice, Kinds, Compute):
    """Options of `gradsync measure launch`."""

    ranks: int = option(1, "ranks of the launch, at least 2", metavar="N", silent=True)
    iterations: int = option(20, "iterations in which layers are timed", metavar="N")
    collective: tuple[str, ...] = option(
        ("native",), "native, the backend's own; bml, bml@bcube:3,2", metavar="NAME[@TOPOLOGY]"
    )
    output: Path = option(meaning=f"folder that {', '.join(WRITTEN)} are written into", metavar="FOLDER")


def measure(options: Options) -> dict[str, Any] | None:
    """Write what was measured into the output folder and return the fits of the all-reduces; None in a rank.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.files.results import write_whole
    from gradsync.files.writing import make_folder
    from gradsync.measure import allreduce
    from gradsync.runtime import models
    from gradsync.runtime.launch import elsewhere, is_rank

    if is_rank():
        _measure_as_rank(options)
        return None
    launches.refuse_ranks("launch", [options.ranks], options.device)
    launches.refuse_counts(batch=options.batch, iterations=options.iterations)
    refuse_collectives(options.collective, [options.ranks], options.device)
    options.refuse_kinds([options.ranks], options.collective)
    models.refuse(options.model, options.size, options.batch)
    testbed = described(options, [options.ranks], options.device)
    launches.refuse_output(options.output)
    enter(options)
    make_folder(options.output)
    with leftovers.temporary_folder(options.output if elsewhere() else None) as folder:
        launches.start("launch", replace(options, output=folder), options.ranks, testbed)
        workload, times, interference = ((folder / name).read_text() for name in RAW)
    content = json.loads(times)
    measured = list(points(content, options.ranks))
    provenance = content["provenance"]
    notes = launches.shared_cores(options.device, options.ranks, provenance["cores"])
    texts = (workload, allreduce.to_csv(measured, {**provenance, "notes": notes}), interference)
    for name, text in zip(WRITTEN, texts, strict=True):
        write_whole(options.output / name, text)
    return {"measured": "launch", "fits": allreduce.fits(measured), "notes": notes, "output": str(options.output)}


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.runtime import devices
    from gradsync.runtime.group import process_group

    with process_group(device=options.device) as (rank, _):
        texts = _texts(options, devices.pick(options.device), rank)
        for name, text in zip(RAW, texts, strict=True):
            if rank == 0:
                write_whole(options.output / name, text)


def _texts(options: Options, device: Device, rank: int) -> Iterator[str]:
    """One after the other, what measurements of layers, all-reduces and interference write; collective."""
    from gradsync.measure import allreduce, interference, layers

    def say(text: str) -> None:
        if rank == 0:
            print(f"measure launch: {text}", file=sys.stderr, flush=True)

    say(f"layers of {options.model}, {options.iterations} iterations")
    workload = layers.measure(options.model, options.batch, options.iterations, size=options.size, device=device)
    yield workload.to_json()
    smallest, largest = span(workload)
    say(f"all-reduces of {smallest} to {largest} B")
    times = allreduce.measure(
        smallest,
        largest,
        device,
        options.collective,
        largest,
        of_kinds=options.kind,
        axes=options.mesh(options.ranks),
        effort=allreduce.BRIEF,
    )
    yield json.dumps(times)
    say("how much computation and messages slow one another")
    yield interference.measure(workload, options.model, options.batch, size=options.size, device=device).to_json()

"""Times of this machine in several numbers of parts, one launch for each: what `gradsync parts` chooses by."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradsync.configuration.options import option
from gradsync.configuration.training import Compute
from gradsync.errors import InputError
from gradsync.experiments.profile import launches
from gradsync.lifetimes import leftovers


@dataclass(frozen=True, kw_only=True)
class Options(Compute):
    """Options of `gradsync measure parts`."""

    parts: tuple[int, ...] = option(
        (1, 2),
        "numbers of parts, each bound to its share of the cores; one launch for each number",
        metavar="N",
        least=1,
        silent=True,
    )
    iterations: int = option(20, "iterations that are timed", metavar="N")
    output: Path = option(meaning="write the times, JSON", metavar="FILE")


def measure(options: Options) -> Path | None:
    """Write the times and return their file; None in a rank, which takes part in the measurement.

    Raises InputError for what can't be measured, before anything starts.
    """
    from gradsync.clusters import chip
    from gradsync.runtime import binding, models
    from gradsync.runtime.launch import elsewhere, is_rank, room_for

    if is_rank():
        _measure_as_rank(options)
        return None
    if elsewhere():
        raise InputError("measure parts: measures one machine: run it on a node, outside srun")
    for count in options.parts:
        chip.refuse_parts(count, len(binding.cores()), f"--parts {count}")
        room_for(count, "--parts")
    launches.refuse_counts(batch=options.batch, iterations=options.iterations)
    models.refuse(options.model, options.size, options.batch)
    launches.refuse_output(options.output)
    _launched(options)
    return options.output


def _launched(options: Options) -> None:
    from gradsync.clusters import chip_times
    from gradsync.files.results import write_whole

    measured: list[dict[str, Any]] = []
    with leftovers.temporary_folder() as folder:
        for count in sorted(set(options.parts)):
            print(f"measure parts: {count}", file=sys.stderr)
            file = folder / f"{count}.json"
            try:
                launches.start("parts", replace(options, parts=(count,), output=file), count)
            finally:
                leftovers.sweep(leftovers.MEMORY)  # a rank that was killed has removed nothing
            measured.append(json.loads(file.read_text()))
    timed = [each.pop("timed") for each in measured]
    times = chip_times.ChipTimes(version=chip_times.VERSION, timed=tuple(timed), **measured[-1])
    write_whole(options.output, times.model_dump_json(indent=1) + "\n")


def _measure_as_rank(options: Options) -> None:
    from gradsync.files.results import write_whole
    from gradsync.measure import chip_parts
    from gradsync.runtime.group import process_group

    with process_group() as (rank, _):
        measured = chip_parts.measure(options.model, options.batch, options.iterations, options.size)
        if rank == 0:
            write_whole(options.output, json.dumps(measured))

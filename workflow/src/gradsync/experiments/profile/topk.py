"""Times of the compressors' selections, and what they select."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync import compressors
from gradsync.configuration.options import option
from gradsync.configuration.training import OnDevice
from gradsync.errors import InputError
from gradsync.experiments.profile import launches
from gradsync.limits import MOST_COUNT, MOST_SELECTIONS

if TYPE_CHECKING:
    from gradsync.costs.selection_times import SelectionTimes


@dataclass(frozen=True, kw_only=True)
class Options(OnDevice):
    """Options of `gradsync measure topk`."""

    elements: tuple[int, ...] = option(meaning="lengths of vectors of 32-bit numbers", metavar="N")
    density: float = option(0.001, "part of the elements that is selected", metavar="D")
    compressor: tuple[str, ...] = option((), "which compressors take turns", metavar="NAME", unset="all", silent=True)
    rounds: int = option(10, "rounds; fewer than 6 have no interval", metavar="N", least=1, most=MOST_SELECTIONS)
    iterations: int = option(1, "selections of a compressor in a round", metavar="N", least=1, most=MOST_SELECTIONS)
    output: Path | None = option(None, "write the points, JSON", metavar="FILE")


def measure(options: Options) -> SelectionTimes:
    """Time the compressors in turn, and write the points if a file is named.

    Raises InputError for what can't be measured, before anything is timed.
    """
    for elements in options.elements:
        if not 1 <= elements <= MOST_COUNT:
            raise InputError(f"--elements {elements}: 1 to {MOST_COUNT}")
    if not 0 < options.density <= 1:
        raise InputError(f"--density {options.density:g}: the part that is selected is above 0 and at most 1")
    for name, count in (("rounds", options.rounds), ("iterations", options.iterations)):
        if not 1 <= count <= MOST_SELECTIONS:
            raise InputError(f"--{name} {count}: 1 to {MOST_SELECTIONS}")
    for compressor in options.compressor:
        compressors.refuse_unselecting(compressor, "--compressor")
    if options.output:
        launches.refuse_output(options.output)
    from gradsync.files.results import write_whole
    from gradsync.measure import topk
    from gradsync.runtime import devices

    device = devices.pick(options.device)
    lengths = sorted(set(options.elements))
    topk.refuse_memory(lengths[-1], device)  # of the longest, before the others take minutes
    names = tuple(dict.fromkeys(options.compressor)) or topk.all_names()
    times = topk.measure(
        lengths,
        options.density,
        names=names,
        rounds=options.rounds,
        iterations=options.iterations,
        device=device,
    )
    if options.output:
        write_whole(options.output, times.to_json())
    return times

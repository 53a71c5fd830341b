"""Into how many parts a chip is best cut: by times that were measured, within its cores and its memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from gradsync.clusters import chip, chip_times
from gradsync.configuration.options import option
from gradsync.errors import InputError
from gradsync.limits import MOST_RANKS
from gradsync.statistics import quiet


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of `gradsync parts`."""

    times: Path = option(meaning="times that `gradsync measure parts` has written", metavar="FILE")
    parts: tuple[int, ...] = option(
        (), "numbers of parts", metavar="N", unset="those measured; of --chip powers of two up to its cores"
    )
    chip: Path | None = option(
        None, "another chip, described as config/chips/knl7250.yaml: its cores and fast memory", metavar="FILE"
    )
    data_bytes: float = option(0.0, "bytes of a copy of the data, which each part has", metavar="BYTES", least=0)


def choose(options: Options) -> dict[str, Any]:
    """The rows of all numbers of parts, the best of them (`parts`), and why.

    Raises InputError for a file that can't be read, and if the chip can have none of the numbers.
    """
    times = chip_times.load(options.times)
    if not 0 <= options.data_bytes <= chip.MOST_BYTES:
        raise InputError(f"--data-bytes {options.data_bytes}: from 0 to {chip.MOST_BYTES:g}")
    described = None if options.chip is None else chip.load(options.chip)
    if described is None:
        cores = max(each.parts * each.cores for each in times.timed)
        memory = float(psutil.virtual_memory().total)
        numbers = options.parts or tuple(each.parts for each in times.timed)
    else:
        cores, memory = described.cores, described.fast_memory_bytes
        numbers = options.parts or tuple(2**i for i in range(cores.bit_length()))
        if chip_times.fitted(times) is None:
            raise InputError(
                f"--times {options.times}: times of another chip need a fit: measure 1 and 2 parts or more"
            )
    for count in numbers:
        if not 1 <= count <= MOST_RANKS:
            raise InputError(f"--parts {count}: 1 to {MOST_RANKS}")
    made = chip_times.rows(
        *(times, sorted(set(numbers)), cores),
        memory_bytes=memory,
        data_bytes=options.data_bytes,
        elsewhere=described is not None,
    )
    chosen = chip_times.best(made)
    return {
        "parts": chosen.parts,
        "why": chip_times.why(chosen, made),
        "model": times.model,
        "batch": times.batch,
        "cores": cores,
        "chip": "this machine" if described is None else described.name,
        "rows": [row._asdict() for row in made],
        "warnings": [
            *quiet.load_warnings(times.provenance, f"times {options.times}"),
            *([] if described is None else ["a core of the chip is taken to be as fast as one of those measured"]),
        ],
    }

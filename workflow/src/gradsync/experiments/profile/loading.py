"""What a training waits for its photographs, without the data cache and with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync.configuration.options import option
from gradsync.configuration.training import Compute, OnDevice
from gradsync.errors import InputError
from gradsync.experiments.profile import launches
from gradsync.limits import MOST_COUNT

if TYPE_CHECKING:
    from gradsync.files.results import Result


@dataclass(frozen=True, kw_only=True)
class Options(OnDevice, Compute):
    """Options of `gradsync measure loading`."""

    model: str = option("resnet50", "of images, which takes the photographs")
    data_folder: Path | None = option(
        None, "photographs in train and val, a folder per class", metavar="FOLDER", unset="made-up ones"
    )
    photographs: int = option(256, "how many are made up", metavar="N", least=1, most=MOST_COUNT)
    blocks: int = option(8, "blocks of a loader; fewer than 6 have no interval", metavar="N", least=1, most=MOST_COUNT)
    iterations: int = option(2, "iterations of a block that are timed", metavar="N", least=1, most=MOST_COUNT)
    output: Path = option(meaning="folder of the runs", metavar="FOLDER")


def measure(options: Options) -> dict[str, Result]:
    """Train one rank by every loader in turn, and write a run of each.

    Raises InputError for what can't be measured, before anything is timed.
    """
    counts = {key: getattr(options, key) for key in ("batch", "photographs", "blocks", "iterations")}
    launches.refuse_counts(**counts)
    if options.data_folder is None and options.photographs < options.batch:
        raise InputError(f"--photographs {options.photographs}: at least --batch {options.batch}")
    from gradsync.files.results import CONTENDERS, write_contenders
    from gradsync.measure import loading
    from gradsync.runtime import devices, models

    launches.refuse_output(options.output / CONTENDERS)
    models.refuse_own(options.model, "what photographs are loaded for")
    device = devices.pick(options.device)
    runs = loading.measure(
        options.model,
        size=options.size,
        batch=options.batch,
        folder=options.data_folder,
        photographs=options.photographs,
        blocks=options.blocks,
        iterations=options.iterations,
        device=device,
    )
    for name, run in runs.items():
        run.save(options.output / name)
    write_contenders(options.output, runs)
    return runs

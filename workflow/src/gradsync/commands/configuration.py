"""Which configuration a command works on, and where its results lie."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from gradsync.errors import InputError
from gradsync.files import reading


def configured(options: argparse.Namespace) -> tuple[Any, Path]:
    """The configuration that a command names, and the folder of its results."""
    from gradsync.configuration import settings

    loaded = settings.load(options.config)
    return loaded, options.results or Path("results") / loaded.name


def with_results(options: argparse.Namespace) -> tuple[Any, Path]:
    """As `configured`, of a configuration that has run; raises InputError where it has no results."""
    loaded, results = configured(options)
    if not results.is_dir():
        raise InputError(
            f"results {reading.shown(results)}: no such folder: run snakemake --cores {os.cpu_count()} --configfile "
            f"{reading.shown(options.config)} first, or name another one with --results"
        )
    return loaded, results

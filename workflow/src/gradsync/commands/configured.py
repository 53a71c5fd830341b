"""What commands that work on a configuration share: its options, the configuration, the folder of its results."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gradsync.errors import InputError
from gradsync.files import reading

if TYPE_CHECKING:
    from gradsync.configuration.settings import Settings


def add(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a configuration and its results."""
    parser.add_argument("--config", default="config/quick.yaml", metavar="FILE", help="the configuration")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="its results (default: results/NAME of the configuration)"
    )


def load(options: argparse.Namespace) -> tuple[Settings, Path]:
    """The configuration that options name, and the folder of its results."""
    from gradsync.configuration import settings

    loaded = settings.load(options.config)
    return loaded, options.results or Path("results") / loaded.name


def load_with_results(options: argparse.Namespace) -> tuple[Settings, Path]:
    """As `load`, of a configuration that has run; raises InputError if it has no results."""
    settings, results = load(options)
    if not results.is_dir():
        raise InputError(
            f"results {reading.shown(results)}: no such folder: run snakemake --cores {os.cpu_count()} --configfile "
            f"{reading.shown(options.config)} first, or name another one with --results"
        )
    return settings, results

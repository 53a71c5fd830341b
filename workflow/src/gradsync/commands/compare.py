"""`gradsync compare`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.errors import InputError, RunError


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument(
        "first",
        type=Path,
        help="folder of a run (with result.json) or of results (results/quick), or an archive of `gradsync artifact`",
    )
    parser.add_argument("second", type=Path, help="another folder of the same kind; with an archive, one of results")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Tell what differs between two runs, or between all results of two runs of the workflow.

    Of two folders of results, or an archive and a folder, it ends with 1 if anything differs that no timing explains.
    """
    from gradsync import artifact
    from gradsync.comparison import compare_results, compare_runs

    is_archive = options.first.is_file()
    if options.second.is_file():
        other = "the folder that the other was made from" if is_archive else options.first
        raise InputError(
            f"{options.second}: a folder is held against an archive, in this order: gradsync compare "
            f"{options.first if is_archive else options.second} {other}"
        )
    for folder in [options.second] if is_archive else [options.first, options.second]:
        if not folder.is_dir():
            raise InputError(
                f"folder {folder}: does not exist: give two folders of runs or of results, or an archive and results"
            )
    if all((folder / "result.json").is_file() for folder in (options.first, options.second)):
        return compare_runs(options.first, options.second)
    told = (artifact.check if is_archive else compare_results)(options.first, options.second)
    if told["unexplained"]:
        raise RunError(f"{len(told['unexplained'])} difference(s) that no timing explains", told)
    return told

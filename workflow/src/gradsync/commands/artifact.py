"""`gradsync artifact`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.commands import configured


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="the archive (default: results/gradsync-NAME.tar.gz), or what --tour prints",
    )
    parser.add_argument(
        "--tour", action="store_true", help="print the lists of docs/artifact.md, with minutes of the last run, instead"
    )


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Write one archive of the results, with the environment, the commit, and what a fresh run must give again.

    `gradsync compare ARCHIVE RESULTS` holds another run against it.
    """
    from gradsync.artifact import tour, write
    from gradsync.files.writing import write_whole

    if options.tour:
        settings, results = configured.load(options)
        lists = tour.lists(settings, results, Path("config"))
        if options.output is None:
            if options.json:
                return {"tour": lists.splitlines()}
            print(lists)
            return None
        write_whole(options.output, f"{lists}\n")
        return {"tour": str(options.output)}
    settings, results = configured.load_with_results(options)
    output = options.output or Path("results") / f"gradsync-{settings.name}.tar.gz"
    return write(options.config, settings, results, output)

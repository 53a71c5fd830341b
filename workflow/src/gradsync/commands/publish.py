"""`gradsync publish`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.commands import configured

CONFIGURATIONS = Path("config")  # of the checkout that a command runs in


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", help="the entry (default: config/published-results/NAME)"
    )


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Keep what was timed in results as dated tables with provenance, which every report shows.

    Runs with uncommitted changes, beside other work, or of another configuration are refused.
    """
    from gradsync.publication import FOLDER, publish

    settings, results = configured.load_with_results(options)
    output = options.output or CONFIGURATIONS / FOLDER / settings.name
    return publish(options.config, settings, results, output)

"""`gradsync site`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.commands import configured

CONFIGURATIONS = Path("config")  # of the checkout that a command runs in


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Write the report as static pages from the results that are there; what is missing is told on them."""
    from gradsync.site.write import write

    settings, results = configured.load_with_results(options)
    written = write(options.config, settings, results, CONFIGURATIONS)
    return {"site": str(written[0]), "files": len(written)}

"""`gradsync track`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import configured


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Import all results into MLflow; what is there already stays as it is."""
    from gradsync.record.tracking import import_results

    settings, results = configured.load_with_results(options)
    told = import_results(settings.mlflow, results)
    return told if options.json else {key: value for key, value in told.items() if key != "runs"}

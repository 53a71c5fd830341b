"""`gradsync external`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import configured


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Hold the numbers carried over from third-party logs against these logs, in the folder that is named."""
    from gradsync.measure import third_party

    settings, results = configured.load(options)
    return third_party.check(settings.external_data, results / "external")

"""`gradsync simulate`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import simulate


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, simulate.Options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Time a plan on a workload and a network, its messages as a whole or every transfer on the links it crosses."""
    return simulate.simulate(parsing.read(simulate.Options, options))

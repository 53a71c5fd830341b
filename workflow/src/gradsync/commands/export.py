"""`gradsync export`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import export


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, export.Options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Give a plan's messages as bucket sizes of stock PyTorch DDP, or all of it as Chakra traces for ASTRA-sim."""
    return export.export(parsing.read(export.Options, options))

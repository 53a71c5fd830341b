"""`gradsync import`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import imported


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, imported.Options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Make a workload, and points of the all-reduce, of traces that PyTorch's profiler or Chakra recorded."""
    return imported.load(parsing.read(imported.Options, options))

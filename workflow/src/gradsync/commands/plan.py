"""`gradsync plan`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import predict


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, predict.Options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Plan a workload under a schedule and predict its iteration."""
    return predict.plan(parsing.read(predict.Options, options))

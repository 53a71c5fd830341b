"""`gradsync elastic`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import elastic


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, elastic.Options)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train by one plan of masters, workers or shared memory: accuracy over time, staleness, where the time goes."""
    return elastic.train(parsing.read(elastic.Options, options))

"""`gradsync train`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import train


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, train.Options)


def run(options: argparse.Namespace) -> dict[str, Any] | None:
    """Train a model on real ranks of this machine, under one plan or several in turn, beside stock DDP."""
    return train.train(parsing.read(train.Options, options))

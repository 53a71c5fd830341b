"""`gradsync emulate`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import configured
from gradsync.experiments import emulate


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    configured.add(parser)
    parser.add_argument("job", metavar="LAUNCH", help="of `emulated` in the configuration: googlenet-8, say")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Emulate a launch of a configuration: hosts on limited links, computation replayed, every scheme in turn.

    If this machine can't, or what is replayed is missing, the result says why.
    """
    settings, results = configured.load(options)
    return emulate.emulate(options.job, settings, results, options.config)

"""`gradsync plan`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands import parsing
from gradsync.experiments import plan_at_hand


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parsing.add(parser, plan_at_hand.Options)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Plan a workload under a schedule and predict its iteration.

    The layers of --model are measured here first.
    """
    return plan_at_hand.plan(parsing.read(plan_at_hand.Options, options))

"""`gradsync testbed`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from gradsync.commands import parsing
from gradsync.errors import RunError
from gradsync.lifetimes import leftovers


def options(parser: argparse.ArgumentParser) -> None:
    """One subcommand for each action."""
    action = parsing.actions(parser, "check|clean")
    check = action("check", _check)
    check.add_argument("--rate", type=float, default=4e8, metavar="BITS_PER_SECOND", help="of a link")
    check.add_argument("--output", type=Path, metavar="FILE.json", help="write what is printed with --json")
    action("clean", _clean)


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Check that this machine can emulate a network of hosts, or remove what a killed run has left behind."""
    result: dict[str, Any] = options.act(options)
    return result


def _check(options: argparse.Namespace) -> dict[str, Any]:
    """Make hosts and limited links, measure them, remove them; say so if that can't be."""
    from gradsync.files.results import machine, write_whole
    from gradsync.testbed.check import check

    measured = check(options.rate) | {"machine": machine()}
    if options.output:
        write_whole(options.output, json.dumps(measured, indent=1) + "\n")
    return measured


def _clean(options: argparse.Namespace) -> dict[str, Any]:
    """Remove networks that killed runs have left behind; nothing else is touched."""
    from gradsync.testbed import namespaces

    left_behind = namespaces.left_behind()
    namespaces.end_makers(left_behind)
    namespaces.remove(left_behind)
    files = leftovers.sweep_all()
    if still := sorted({*left_behind} & {*namespaces.left_behind()}):
        raise RunError(
            f"testbed clean: {len(still)} namespaces stay, {still[0]} first: run it as who made them, or root"
        )
    return {"removed": [*left_behind, *files]}

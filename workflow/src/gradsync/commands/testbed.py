"""`gradsync testbed`: whether this machine can hold an emulated network, and what killed runs have left of one."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradsync.errors import RunError
from gradsync.lifetimes import leftovers


def testbed(options: argparse.Namespace) -> dict[str, Any]:
    """Check that this machine can emulate a network of hosts, or remove what a killed run has left behind."""
    actions = {"check": _check, "clean": _clean}
    return actions[options.action](options)


def _check(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.files.results import machine, write_whole
    from gradsync.testbed.check import check

    found = check(options.rate) | {"machine": machine()}
    if options.output:
        write_whole(options.output, json.dumps(found, indent=1) + "\n")
    return found


def _clean(options: argparse.Namespace) -> dict[str, Any]:
    from gradsync.testbed import namespaces

    found = namespaces.left_behind()
    namespaces.end_makers(found)
    namespaces.remove(found)
    files = leftovers.sweep_all()
    if still := sorted({*found} & {*namespaces.left_behind()}):
        raise RunError(
            f"testbed clean: {len(still)} namespaces stay, {still[0]} first: run it as who made them, or root"
        )
    return {"removed": [*found, *files]}

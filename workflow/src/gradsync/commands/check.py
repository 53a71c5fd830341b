"""`gradsync check`."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.errors import RunError


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("plan", metavar="PLAN.json", help="what is checked")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Check that a plan can run and computes what it declares; if it can't, show which operation is at fault."""
    from gradsync import check
    from gradsync.files import reading
    from gradsync.plan import Plan

    plan = Plan.from_json(reading.text(options.plan, "plan"), options.plan)
    about: dict[str, Any] = {"plan": plan.name, "ranks": plan.ranks}
    try:
        check.check(plan)
    except check.PlanError as error:
        at_fault = [
            {"rank": rank, "step": step, "operation": plan.role_of[rank].flat[step].name, "mark": mark}
            for (rank, step), mark in sorted(error.at_fault.items())
        ]
        failure = {**about, "passes": False, "problem": error.problem, "at_fault": at_fault}
        raise RunError(str(error), failure if options.json else None) from None
    return {
        **about,
        "passes": True,
        "roles": {role.name: f"{len(role.ranks)} rank(s), {len(role.flat)} operations a turn" for role in plan.roles},
        "messages": len(plan.communications()),
    }

"""`gradsync draw`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gradsync.errors import InputError


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("input", type=Path, metavar="PLAN.json|TRACE.json", help="what is drawn")
    parser.add_argument(
        "--output", required=True, type=Path, metavar="FILE", help="its ending is the format: svg, pdf, png"
    )
    parser.add_argument("--workload", metavar="W.json", help="times for a plan (default: one unit per operation)")
    parser.add_argument("--allreduce", metavar="a=,b=|POINTS.csv", help="times for a plan's messages")
    parser.add_argument("--rank", type=int, action="append", help="only this rank (may be repeated)")
    parser.add_argument("--turn", type=int, help="only this iteration")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a plan or a trace as a timeline."""
    from gradsync.drawing import timeline
    from gradsync.files import reading

    text = reading.text(options.input, "input")
    cost = _cost_of_messages(options, text) if options.workload or options.allreduce else None
    trace = timeline.load(text, str(options.input), options.workload, cost)
    timeline.draw(trace, options.output, ranks=options.rank, turn=options.turn)
    return {"drawn": str(options.output), "ranks": len(trace.ranks), "spans": len(trace.spans)}


def _cost_of_messages(options: argparse.Namespace, text: str) -> Any:
    """The cost of a plan's messages, if options give it; raises InputError if a trace or another plan gets times."""
    from gradsync.check import check
    from gradsync.experiments.costs import cost_of, refuse_other, scheme_of
    from gradsync.files.reading import parse_json
    from gradsync.plan import Plan
    from gradsync.plan.workload import Workload

    content = parse_json(text, f"{options.input}: neither a plan nor a trace")
    if isinstance(content, dict) and "spans" in content:
        option = "--workload" if options.workload else "--allreduce"
        raise InputError(f"{option}: {options.input} is a trace, which has its own times: leave it out, or draw a plan")
    plan = Plan.from_json(text, str(options.input))
    check(plan)
    if options.workload:
        refuse_other(plan, Workload.load(options.workload))
    if not options.allreduce:
        return None
    return cost_of(options.allreduce, ranks=plan.ranks, collective=scheme_of(plan).measured_as(plan.ranks))

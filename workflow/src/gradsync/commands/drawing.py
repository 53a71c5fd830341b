"""Draw a plan or a trace, and export a plan to stock PyTorch."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from gradsync.commands.costing import cost_of, refuse_other, scheme_of
from gradsync.commands.planning import read
from gradsync.errors import InputError


def _times_of(options: argparse.Namespace, text: str) -> Any:
    """The cost of a plan's messages, where it is given; raises InputError where a trace or another plan gets times."""
    from gradsync.check import check
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


def draw(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a plan or a trace as a timeline."""
    from gradsync.drawing import timeline

    text = read(options.input, "input")
    cost = _times_of(options, text) if options.workload or options.allreduce else None
    trace = timeline.load(text, str(options.input), options.workload, cost)
    timeline.draw(trace, options.output, ranks=options.rank, turn=options.turn)
    return {"drawn": str(options.output), "ranks": len(trace.ranks), "spans": len(trace.spans)}


def export(options: argparse.Namespace) -> dict[str, Any]:
    """A plan's messages as bucket sizes of stock PyTorch DDP."""
    from gradsync.check import check
    from gradsync.configuration.peers import bucket_cap_mb_list, lost_in_buckets
    from gradsync.plan import Plan

    plan = Plan.from_json(read(options.plan, "plan"), options.plan)
    check(plan)
    sizes = bucket_cap_mb_list(plan)
    lost = lost_in_buckets(plan)
    for part in lost:
        print(f"gradsync: warning: plan {plan.name!r}, as buckets of DDP: {part}", file=sys.stderr)
    return {
        "plan": plan.name,
        "buckets": len(sizes),
        "bucket_cap_mb_list": sizes,
        "lost": lost,
        "use": "DistributedDataParallel(model, bucket_cap_mb_list=[...])",
    }

"""Draw a plan or a trace, and export a plan to stock PyTorch."""

from __future__ import annotations

import argparse
from typing import Any

from gradsync.commands.costing import cost_of, scheme_of
from gradsync.commands.planning import read
from gradsync.errors import InputError


def _messages_of(text: str) -> tuple[int | None, str]:
    """Ranks of a plan's JSON and what its messages are measured as; nothing where it is none (its reader says so)."""
    from gradsync.plan import Plan

    try:
        plan = Plan.from_json(text)
    except InputError:
        return None, ""
    return plan.ranks, scheme_of(plan).measured_as(plan.ranks)


def draw(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a plan or a trace as a timeline."""
    from gradsync.render import timeline

    text = read(options.input, "input")
    cost = None
    if options.allreduce:
        ranks, collective = _messages_of(text)
        cost = cost_of(options.allreduce, ranks=ranks, collective=collective)
    trace = timeline.load(text, str(options.input), options.workload, cost)
    timeline.draw(trace, options.output, ranks=options.rank, turn=options.turn)
    return {"drawn": str(options.output), "ranks": len(trace.ranks), "spans": len(trace.spans)}


def export(options: argparse.Namespace) -> dict[str, Any]:
    """A plan's messages as bucket sizes of stock PyTorch DDP."""
    from gradsync.check import check
    from gradsync.peers import bucket_cap_mb_list
    from gradsync.plan import Plan

    plan = Plan.from_json(read(options.plan, "plan"), options.plan)
    check(plan)
    sizes = bucket_cap_mb_list(plan)
    return {
        "plan": plan.name,
        "buckets": len(sizes),
        "bucket_cap_mb_list": sizes,
        "use": "DistributedDataParallel(model, bucket_cap_mb_list=[...])",
    }

"""Draw a plan or a trace, and export a plan to stock PyTorch."""

from __future__ import annotations

import argparse
import json
from typing import Any

from gradsync.commands.costing import cost_of
from gradsync.commands.planning import read


def _ranks_of(text: str) -> int | None:
    """Ranks of a plan's JSON; None where it is none (which whoever reads it says)."""
    try:
        content = json.loads(text)
    except ValueError:
        return None
    ranks = content.get("ranks") if isinstance(content, dict) else None
    return ranks if isinstance(ranks, int) else None


def draw(options: argparse.Namespace) -> dict[str, Any]:
    """Draw a plan or a trace as a timeline."""
    from gradsync.render import timeline

    text = read(options.input, "input")
    cost = cost_of(options.allreduce, ranks=_ranks_of(text)) if options.allreduce else None
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

"""`gradsync export`."""

from __future__ import annotations

import argparse
import sys
from typing import Any


def options(parser: argparse.ArgumentParser) -> None:
    """What it takes."""
    parser.add_argument("plan", metavar="PLAN.json", help="what is exported")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Give a plan's messages as bucket sizes of stock PyTorch DDP."""
    from gradsync.check import check
    from gradsync.configuration.peers import bucket_cap_mb_list, lost_in_buckets
    from gradsync.files import reading
    from gradsync.plan import Plan

    plan = Plan.from_json(reading.text(options.plan, "plan"), options.plan)
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

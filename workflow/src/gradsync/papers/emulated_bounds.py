"""The hard bound of an emulated run: computation that is replayed, and its bytes on the links of its testbed."""

from __future__ import annotations

from pathlib import Path

from gradsync.engine.bounds import Demand, hard_bound_seconds, of_gradients, refuse_below
from gradsync.files.results import Result
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.testbed.framing import links_of

HALF = ("fp16", "bf16")  # hooks of stock DDP that send half of each gradient
UNKNOWN = ("powersgd",)  # hooks whose bytes are not known


def hard_bound(results: Path, job: str, result: Result) -> float:
    """In the testbed's own seconds; NaN if nothing is replayed, or the plan is not there.

    The update is not counted: what is replayed has none, and what it takes is only measured. Raises RunError if the run
    was faster than possible.
    """
    replayed, planned = results / "emulated" / job / "replay.json", "collective" in result.settings
    plan = results / "plans" / "emulated" / job / f"{result.scheme}.json"
    if not replayed.is_file() or (planned and not plan.is_file()):
        return float("nan")
    computation, links = Workload.load(replayed), links_of(result.settings["testbed"], result.ranks)
    if planned:
        bound = hard_bound_seconds(Plan.from_json(plan.read_text(), str(plan)), computation, links)
    else:
        bound = _of_stock_ddp(computation, result, links.ranks_per_node).seconds(links)
    refuse_below(result.summary["iteration_seconds"], bound, f"{job}, {result.scheme}, emulated")
    return bound


def _of_stock_ddp(computation: Workload, result: Result, ranks_per_node: int) -> Demand:
    hook = result.settings.get("hook", "")
    sent = computation.bytes / 2 if hook in HALF else 0.0 if hook in UNKNOWN else computation.bytes
    return of_gradients(computation, result.ranks, sent, ranks_per_node)

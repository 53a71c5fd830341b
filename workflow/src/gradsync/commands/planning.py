"""Plan, simulate, draw and export: what needs no torch."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from gradsync.errors import InputError


def cost_of(text: str, option: str = "--allreduce", ranks: int | None = None) -> Any:
    """The cost of a message from the command line; `ranks` chooses where a file has several."""
    from gradsync.costs import Linear, fitted

    pairs = dict(re.findall(r"(\w+)=([^,]*)", text)) if "=" in text and not Path(text).is_file() else None
    if pairs is None:
        sizes, times = fitted.load_points(text, ranks)
        return fitted.fit(sizes, times, source=text)
    if set(pairs) != {"a", "b"} or text.count("=") != 2:
        raise InputError(f"{option} {text}: give a=SECONDS,b=SECONDS_PER_BYTE, or a CSV file of bytes,seconds")
    try:
        return Linear(float(pairs["a"]), float(pairs["b"]), "given")
    except ValueError:
        raise InputError(f"{option} {text}: a and b must be numbers") from None


def _workload_and_cost(options: argparse.Namespace, ranks: int) -> tuple[Any, Any, list[str]]:
    """(workload, cost of an all-reduce of `ranks` ranks, warnings) from files, or from a measured cluster."""
    from gradsync import clusters
    from gradsync.clusters import choice
    from gradsync.workload import Workload

    if not options.cluster:
        for key in ("nodes", "scale"):
            if getattr(options, key):
                raise InputError(f"--{key}: only with --cluster, whose all-reduces it chooses from")
        return Workload.load(options.workload), cost_of(options.allreduce, ranks=ranks), []
    profile = clusters.load(options.cluster)
    cost, each, warnings = choice.cost(profile, options.cluster, ranks, nodes=options.nodes, scale=options.scale)
    if Path(options.workload).is_file():
        return Workload.load(options.workload), cost, warnings
    workload, more = choice.workload(profile, options.cluster, options.workload, each)
    return workload, cost, warnings + more


def _value(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def refuse_rates(options: argparse.Namespace) -> None:
    """Raises InputError for a learning rate or momentum that makes no sense."""
    for key in ("lr", "momentum"):
        if not 0 <= getattr(options, key) < float("inf"):
            raise InputError(f"--{key} {getattr(options, key)}: must be finite and not negative")


def _interference(options: argparse.Namespace, ranks: int) -> Any:
    from gradsync.costs.interference import Interference

    return Interference.load(options.interference, ranks) if options.interference else None


def _predicted(plan: Any, workload: Any, cost: Any, interference: Any = None) -> dict[str, Any]:
    from gradsync.costs import alpha_beta
    from gradsync.costs.fitted import Fitted
    from gradsync.simulate import lower_bound_seconds, simulate

    network = alpha_beta.around(cost, plan.ranks)
    plain = simulate(plan, workload, network)
    trace = simulate(plan, workload, network, interference=interference) if interference else plain
    messages = plan.messages()
    size = {layer.name: layer.bytes for layer in workload.layers}
    beyond = []
    if isinstance(cost, Fitted):
        sums = [sum(size[name] for name in message) for message in messages]
        beyond = sorted({total for total in sums if cost.extrapolates(total)})
    answer: dict[str, Any] = {
        "plan": plan.name,
        "workload": workload.name,
        "ranks": plan.ranks,
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "iteration_seconds_without_interference": plain.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        "lower_bound_seconds": lower_bound_seconds(workload, network),
        "allreduce": cost.describe(),
        "messages": messages,
        "warnings": [],
    }
    if interference:
        answer["interference"] = [
            {"bytes": point.bytes, "computation": point.computation, "communication": point.communication}
            for point in interference.points
        ]
        answer["handover_seconds"] = interference.handover_seconds
    if isinstance(cost, Fitted):
        answer["allreduce_residual"] = cost.residual
        answer["extrapolated_bytes"] = beyond
    if beyond:
        answer["warnings"].append(
            f"{len(beyond)} message size(s), up to {beyond[-1]} bytes, lie outside the measured {cost.smallest:g} to "
            f"{cost.largest:g} bytes: their times are extrapolated; measure up to the largest message"
        )
    return answer


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """Plan a workload under a schedule and predict its iteration."""
    from gradsync import schemes
    from gradsync.check import check
    from gradsync.results import write_whole

    refuse_rates(options)
    workload, cost, warnings = _workload_and_cost(options, options.ranks)
    interference = _interference(options, options.ranks)
    if options.schemes:
        (scheme,) = schemes.pick(schemes.load(options.schemes), [options.schedule], "--schedule")
    else:
        scheme = schemes.Scheme(name=options.schedule)
    chosen = {}
    for text in options.option:
        key, separator, value = text.partition("=")
        if not separator:
            raise InputError(f"--option {text}: give KEY=VALUE")
        chosen[key] = _value(value)
    scheme = scheme.model_copy(update={"options": {**scheme.options, **chosen}})
    plan = schemes.plan(
        scheme,
        workload,
        cost,
        options.ranks,
        lr=options.lr,
        momentum=options.momentum,
        loss_scaling=options.precision == "float16",
        statistics=options.statistics == "broadcast",
    )
    check(plan)
    answer = _predicted(plan, workload, cost, interference)
    answer["warnings"] = warnings + answer["warnings"]
    if options.output:
        write_whole(options.output, plan.to_json() + "\n")
    if options.prediction:
        write_whole(options.prediction, json.dumps(answer, indent=1) + "\n")
    for warning in answer["warnings"]:
        print(f"gradsync: warning: {warning}", file=sys.stderr)
    return answer


def read(path: str | Path, what: str) -> str:
    """A file's text; raises InputError that names `what` it was to be."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{what} {path}: can't be read: {error}") from None


def simulate(options: argparse.Namespace) -> dict[str, Any]:
    """Time a plan on a workload and a network."""
    from gradsync.check import check
    from gradsync.costs import Network, alpha_beta
    from gradsync.plan import Plan
    from gradsync.results import write_whole
    from gradsync.simulate import lower_bound_seconds, simulate

    plan = Plan.from_json(read(options.plan, "plan"), options.plan)
    workload, cost, warnings = _workload_and_cost(options, plan.ranks)
    network = alpha_beta.around(cost, plan.ranks)
    interference = _interference(options, plan.ranks)
    if options.point_to_point:
        network = Network({**network.costs, "send": cost_of(options.point_to_point, "--point-to-point")})
    if options.turns is not None and options.turns < 2:
        raise InputError(f"--turns {options.turns}: a period needs at least 2")
    check(plan)
    trace = simulate(plan, workload, network, turns=options.turns, interference=interference)
    if options.output:
        write_whole(options.output, trace.to_json() + "\n")
    if options.chrome:
        write_whole(options.chrome, trace.to_chrome() + "\n")
    for warning in warnings:
        print(f"gradsync: warning: {warning}", file=sys.stderr)
    return {
        "plan": plan.name,
        "turns": trace.turns,
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        "lower_bound_seconds": lower_bound_seconds(workload, network),
        "allreduce": cost.describe(),
        "warnings": warnings,
    }


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

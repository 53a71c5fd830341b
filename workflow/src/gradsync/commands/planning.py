"""Plan and simulate: what needs no torch."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.commands.costing import Costs, cost_of, costs, positive, refuse_other, scheme_of, speeds_of
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.plan import Plan
    from gradsync.plan.trace import Trace


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
    if not 0 <= options.lr < float("inf"):
        raise InputError(f"--lr {options.lr}: must be finite and not negative")
    if not 0 <= options.momentum < 1:
        raise InputError(f"--momentum {options.momentum}: must be at least 0 and less than 1, or nothing ever settles")


def refuse_steps(options: argparse.Namespace) -> None:
    """Raises InputError for a number of micro-batches or a norm that makes no sense."""
    if options.accumulate < 1:
        raise InputError(f"--accumulate {options.accumulate}: a step has at least 1 micro-batch")
    if options.clip_norm is not None and not 0 < options.clip_norm < float("inf"):
        raise InputError(f"--clip-norm {options.clip_norm}: must be positive and finite; leave it out to clip nothing")


def _bounds(plan: Plan, workload: Any, known: Costs, trace: Trace) -> dict[str, float | None]:
    """Both bounds of an iteration; raises RunError where the trace is faster than possible."""
    from gradsync.engine import bounds

    hard, model = bounds.both_bounds_seconds(plan, workload, known.network, *known.links)
    _refuse_below(plan, trace, hard)
    return {"hard_bound_seconds": hard, "model_bound_seconds": model}


def _bounds_on_links(plan: Plan, workload: Any, links: dict[str, Any], trace: Trace) -> dict[str, float | None]:
    """The same where every transfer takes links whose rates are given: no cost was fitted."""
    from gradsync.engine import bounds

    hard = bounds.links_bound_seconds(plan, workload, **links)
    _refuse_below(plan, trace, hard)
    return {"hard_bound_seconds": hard, "model_bound_seconds": None}


def _refuse_below(plan: Plan, trace: Trace, hard: float) -> None:
    from gradsync.engine.bounds import refuse_below

    if trace.steady:  # a turn of a loop that is not may be shorter than its mean
        refuse_below(trace.iteration_seconds(plan.pace), hard, f"plan {plan.name!r}, simulated")


def _steadiness(trace: Trace) -> dict[str, Any]:
    """Whether the simulation repeats itself (None: too few turns to know), and over how many turns its times are."""
    return {"steady": trace.steady, "period_turns": trace.period}


def _interference(options: argparse.Namespace, ranks: int) -> Any:
    from gradsync.costs.interference import Interference

    return Interference.load(options.interference, ranks) if options.interference else None


def _predicted(plan: Any, workload: Any, known: Costs, interference: Any = None) -> dict[str, Any]:
    from gradsync.costs.fitted import Fitted
    from gradsync.engine.simulate import simulate
    from gradsync.statistics import quiet

    cost, network = known.all_reduce, known.network
    alone = getattr(cost, "alone", cost)  # of a message alone, where something is known of several
    plain = simulate(plan, workload, network)
    trace = simulate(plan, workload, network, interference=interference) if interference else plain
    messages = plan.messages()
    size = {layer.name: layer.bytes for layer in workload.layers}
    beyond = []
    if isinstance(alone, Fitted):
        sums = [sum(size[name] for name in message) for message in messages]
        beyond = sorted({total for total in sums if alone.extrapolates(total)})
    answer: dict[str, Any] = {
        "plan": plan.name,
        "workload": workload.name,
        "ranks": plan.ranks,
        "collective": plan.provenance["collective"],
        "topology": plan.provenance["topology"],
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "iteration_seconds_without_interference": plain.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        **_steadiness(trace),
        **_bounds(plan, workload, known, plain),
        "allreduce": cost.describe(),
        "messages": messages,
        "warnings": [note for note in dict.fromkeys((trace.note, plain.note)) if note],
    }
    if interference:
        answer["warnings"] += quiet.load_warnings(interference.provenance, "slow-down")
        answer["interference"] = [
            {"bytes": point.bytes, "computation": point.computation, "communication": point.communication}
            for point in interference.points
        ]
        answer["handover_seconds"] = interference.handover_seconds
    if isinstance(alone, Fitted):
        answer["allreduce_residual"] = alone.residual
        answer["extrapolated_bytes"] = beyond
    if beyond:
        answer["warnings"].append(
            f"{len(beyond)} message size(s), up to {beyond[-1]} bytes, lie outside the measured {alone.smallest:g} to "
            f"{alone.largest:g} bytes: their times are extrapolated; measure up to the largest message"
        )
    return answer


def _scheme(options: argparse.Namespace) -> Any:
    """The scheme of that name, with the parts that were asked for."""
    from gradsync.configuration import schemes

    if options.schemes:
        (scheme,) = schemes.pick(schemes.load(options.schemes), [options.schedule], "--schedule")
    else:
        scheme = schemes.Scheme(name=options.schedule)
    asked = {key: getattr(options, key) for key in ("collective", "topology")}
    return scheme.model_copy(update={key: part for key, part in asked.items() if part})


def plan(options: argparse.Namespace) -> dict[str, Any]:
    """Plan a workload under a schedule and predict its iteration."""
    from gradsync.check import check
    from gradsync.configuration import schemes
    from gradsync.files.results import write_whole

    refuse_rates(options)
    refuse_steps(options)
    if options.ranks_a_node is not None and options.ranks_a_node < 1:
        raise InputError(f"--ranks-a-node {options.ranks_a_node}: at least 1")
    scheme = _scheme(options)
    scheme.refuse_ranks(options.ranks, options.ranks_a_node)
    # from here on its topology has numbers, whatever the nodes are
    scheme = scheme.model_copy(update={"topology": scheme.network(options.ranks, options.ranks_a_node).name})
    workload, known = costs(options, options.ranks, scheme)
    interference = _interference(options, options.ranks)
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
        known.all_reduce,
        options.ranks,
        lr=options.lr,
        momentum=options.momentum,
        loss_scaling=options.precision == "float16",
        statistics=options.statistics == "broadcast",
        accumulate=options.accumulate,
        clip_norm=options.clip_norm,
    )
    check(plan)
    answer = _predicted(plan, workload, known, interference)
    answer["warnings"] = known.warnings + answer["warnings"]
    if options.output:
        write_whole(options.output, plan.to_json() + "\n")
    if options.prediction:
        write_whole(options.prediction, json.dumps(answer, indent=1) + "\n")
    for warning in answer["warnings"]:
        print(f"gradsync: warning: {warning}", file=sys.stderr)
    return answer


def read(path: str | Path, what: str) -> str:
    """A file's text; raises InputError that names `what` it was to be."""
    from gradsync.files import reading

    return reading.text(path, what)


def simulate(options: argparse.Namespace) -> dict[str, Any]:
    """Time a plan on a workload and a network, its messages as a whole or every transfer on the links it crosses."""
    from gradsync.check import check
    from gradsync.collectives import NATIVE
    from gradsync.costs import Network
    from gradsync.engine.simulate import simulate
    from gradsync.files.results import write_whole
    from gradsync.plan import Plan

    plan = Plan.from_json(read(options.plan, "plan"), options.plan)
    workload, known = costs(options, plan.ranks, scheme_of(plan))
    interference = _interference(options, plan.ranks)
    if options.point_to_point:
        send = cost_of(options.point_to_point, "--point-to-point")
        known = known._replace(network=Network({**known.network.costs, "send": send}))
    if options.turns is not None and options.turns < 2:
        raise InputError(f"--turns {options.turns}: a period needs at least 2")
    check(plan)
    refuse_other(plan, workload)
    links: dict[str, Any] = {}
    scheme = scheme_of(plan)
    if options.transfers:
        links = {"topology": scheme.network(plan.ranks), "speeds": speeds_of(options.allreduce)}
    gamma = None if options.gamma is None else positive("--gamma", options.gamma, "seconds per byte, not negative")
    how = {"turns": options.turns, "interference": interference, "add_seconds_per_byte": gamma}
    trace = simulate(plan, workload, known.network, **how, **links)
    if options.transfers and scheme.collective != NATIVE:
        bounds = _bounds_on_links(plan, workload, links, trace)
    else:
        bounds = _bounds(plan, workload, known, trace)
    if options.output:
        write_whole(options.output, trace.to_json() + "\n")
    if options.chrome:
        write_whole(options.chrome, trace.to_chrome() + "\n")
    warnings = [*known.warnings, *([trace.note] if trace.note else [])]
    for warning in warnings:
        print(f"gradsync: warning: {warning}", file=sys.stderr)
    return {
        "plan": plan.name,
        "turns": trace.turns,
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        **_steadiness(trace),
        **bounds,
        "allreduce": known.all_reduce.describe(),
        "warnings": warnings,
    }

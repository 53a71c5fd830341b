"""Time a plan on a workload and a network: its messages as a whole, or every transfer on the links that it crosses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradsync.configuration.options import option
from gradsync.errors import InputError
from gradsync.experiments.costs import Known, cost_of, costs, on_axes, positive, refuse_other, scheme_of, speeds_of
from gradsync.experiments.predict import bounds, interference_of, refuse_below, steadiness, warn
from gradsync.limits import LEAST_TURNS

if TYPE_CHECKING:
    from gradsync.plan import Plan
    from gradsync.plan.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Options(Known):
    """Options of `gradsync simulate`."""

    plan: str = option(meaning="what is simulated", metavar="PLAN.json")
    transfers: bool = option(
        False,
        "every transfer of the plan's collective on the links of its topology (--allreduce alpha=..,bandwidth=..)",
    )
    point_to_point: str | None = option(
        None, "cost of a send", metavar="a=SECONDS,b=SECONDS_PER_BYTE", unset="a ring's"
    )
    gamma: str | None = option(
        None, "of adding what is received", metavar="SECONDS_PER_BYTE", unset="the workload's kernels"
    )
    turns: int | None = option(None, "iterations", metavar="N", unset="until the period is steady")
    output: Path | None = option(None, "write the trace", metavar="TRACE.json")
    chrome: Path | None = option(None, "write it for Perfetto or chrome://tracing", metavar="FILE.json")


def simulate(options: Options) -> dict[str, Any]:
    """Times of the plan's iteration; writes its trace if options name files for it.

    Raises InputError for a workload that the plan was not made from, PlanError for a plan that can't run.
    """
    from gradsync.check import check
    from gradsync.collectives import NATIVE
    from gradsync.costs import Network
    from gradsync.engine import simulate as engine
    from gradsync.engine.clocks import priced_as
    from gradsync.files import reading
    from gradsync.files.results import write_whole
    from gradsync.plan import Collective, Plan

    plan = Plan.from_json(reading.text(options.plan, "plan"), options.plan)
    scheme = scheme_of(plan)
    workload, known = costs(options, plan.ranks, scheme)
    interference = interference_of(options, plan.ranks)
    if options.point_to_point:
        send = cost_of(options.point_to_point, "--point-to-point")
        known = known._replace(network=Network({**known.network.costs, "send": send}))
    sent = {priced_as(op) for role in plan.roles for op in role.flat if isinstance(op, Collective)}
    known = on_axes(known, options.allreduce, plan.axes, plan.ranks, sent)
    if options.turns is not None and options.turns < LEAST_TURNS:
        raise InputError(f"--turns {options.turns}: a period needs at least {LEAST_TURNS}")
    check(plan)
    refuse_other(plan, workload)
    links: dict[str, Any] = {}
    if options.transfers:
        links = {"topology": scheme.network(plan.ranks), "speeds": speeds_of(options.allreduce)}
    gamma = None if options.gamma is None else positive("--gamma", options.gamma, "seconds per byte, not negative")
    trace = engine.simulate(
        plan,
        workload,
        known.network,
        turns=options.turns,
        interference=interference,
        add_seconds_per_byte=gamma,
        **links,
    )
    if options.transfers and scheme.collective != NATIVE:
        both = _bounds_on_links(plan, workload, links, trace)
    else:
        both = bounds(plan, workload, known, trace)
    if options.output:
        write_whole(options.output, trace.to_json() + "\n")
    if options.chrome:
        write_whole(options.chrome, trace.to_chrome() + "\n")
    warnings = [*known.warnings, *([trace.note] if trace.note else [])]
    warn(warnings)
    return {
        "plan": plan.name,
        "turns": trace.turns,
        "iteration_seconds": trace.iteration_seconds(plan.pace),
        "exposed_communication_seconds": trace.exposed_communication_seconds(plan.pace),
        **steadiness(trace),
        **both,
        "allreduce": known.all_reduce.describe(),
        "warnings": warnings,
    }


def _bounds_on_links(plan: Plan, workload: Any, links: dict[str, Any], trace: Trace) -> dict[str, float | None]:
    """The hard bound, if every transfer takes links of given rates; no cost was fitted, so no model bounds it."""
    from gradsync.engine.bounds import links_bound_seconds

    hard = links_bound_seconds(plan, workload, **links)
    refuse_below(plan, trace, hard)
    return {"hard_bound_seconds": hard, "model_bound_seconds": None}

"""An iteration that is simulated for a row of a table, and the note on it in that row."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from gradsync.costs import Network
from gradsync.engine.bounds import Links, both_bounds_seconds, links_bound_seconds, refuse_below
from gradsync.engine.simulate import simulate
from gradsync.plan import Plan
from gradsync.plan.trace import NOT_STEADY, Trace
from gradsync.plan.workload import Workload


class Simulated(NamedTuple):
    """Columns of a row, by their names."""

    iteration_seconds: float
    exposed_communication_seconds: float
    hard_bound_seconds: float
    model_bound_seconds: float
    note: str


BOUNDS = ("hard_bound_seconds", "model_bound_seconds")


def timed(plan: Plan, workload: Workload, network: Network, *links: Links, **how: Any) -> Simulated:
    """One iteration of a plan, in its steady state unless `how` names `turns` (`engine/simulate.py`), and its bounds.

    `links`: at nominal rates, if these are known. Raises RunError if the iteration is faster than they allow.
    """
    trace = simulate(plan, workload, network, **how)
    seconds, exposed = (time(plan.pace) for time in (trace.iteration_seconds, trace.exposed_communication_seconds))
    bounds = bounds_of(plan, workload, network, trace, *links)
    if "topology" in how:
        bounds["model_bound_seconds"] = links_bound_seconds(plan, workload, how["topology"], how["speeds"])
    return Simulated(seconds, exposed, **bounds, note=trace.note)


def bounds_of(plan: Plan, workload: Workload, network: Network, trace: Trace, *links: Links) -> dict[str, float]:
    """Both bounds of a simulated plan; raises RunError if it is faster than its links and computation allow."""
    hard, model = both_bounds_seconds(plan, workload, network, *links)
    if trace.steady is not False:  # turns of a loop that is not steady may be shorter than their mean
        what = f"plan {plan.name!r} on {workload.name!r}, {plan.ranks} ranks, simulated"
        refuse_below(trace.iteration_seconds(plan.pace), hard, what)
    return dict(zip(BOUNDS, (hard, model), strict=True))


def unsteady(frame: pd.DataFrame) -> str:
    """A sentence for the caption if simulations of these rows don't repeat themselves, else nothing."""
    count = int(frame.note.fillna("").str.contains(NOT_STEADY).sum())
    return f" {count} of {len(frame)} rows are {NOT_STEADY}: means over several turns (column note)." if count else ""

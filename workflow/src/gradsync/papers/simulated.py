"""An iteration that is simulated for a row of a table, and what has to be said of it there."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from gradsync.costs import Network
from gradsync.plan import Plan
from gradsync.simulate import simulate
from gradsync.trace import NOT_STEADY
from gradsync.workload import Workload


class Simulated(NamedTuple):
    """Columns of a row, by their names."""

    iteration_seconds: float
    exposed_communication_seconds: float
    note: str


def timed(plan: Plan, workload: Workload, network: Network, **how: Any) -> Simulated:
    """One iteration of a plan, in its steady state unless `how` names `turns` (`simulate.py`)."""
    trace = simulate(plan, workload, network, **how)
    seconds, exposed = (time(plan.pace) for time in (trace.iteration_seconds, trace.exposed_communication_seconds))
    return Simulated(seconds, exposed, trace.note)


def unsteady(frame: pd.DataFrame) -> str:
    """A sentence for the caption where simulations of these rows don't repeat themselves, else nothing."""
    count = int(frame.note.fillna("").str.contains(NOT_STEADY).sum())
    return f" {count} of {len(frame)} rows are {NOT_STEADY}: means over several turns (column note)." if count else ""

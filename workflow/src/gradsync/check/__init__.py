"""Checks of a plan before anything runs: what passes can run on real ranks, and computes what it declares.

Every problem is reported with the plan's rank x step grid, the operation at fault marked. `form.py`: names, ranges,
operands; `computation.py`: passes of a model; `waits.py`: waits and races; `channels.py`: the two ends of messages;
`runs.py`: deadlocks; `contents.py`: whose gradients, which parameters.
"""

from __future__ import annotations

from gradsync.check.channels import refuse_channels
from gradsync.check.computation import refuse_computation
from gradsync.check.form import refuse_form
from gradsync.check.grid import PlanError, grid
from gradsync.check.runs import refuse_runs
from gradsync.check.waits import refuse_waits
from gradsync.plan import Plan

__all__ = ["PlanError", "check", "grid"]


def check(plan: Plan) -> None:
    """Raises PlanError with the first problem found; a plan that returns can run on any number of turns."""
    refuse_form(plan)
    for role in plan.roles:
        refuse_computation(plan, role)
        refuse_waits(plan, role)
    refuse_channels(plan)
    refuse_runs(plan)

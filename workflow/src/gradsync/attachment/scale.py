"""The loss scale of torch's GradScaler, for a plan that applies gradients itself.

The plan takes the scale out of gradients before it clips and applies them, and leaves a step out if their norm over all
ranks is not finite (`transforms/loss_scaling.py`). The scaler decides by that what the next scale is: the plan's own
growth is never reached, since its count of good steps begins anew in each turn.
"""

from __future__ import annotations

import dataclasses

import torch

from gradsync.check import check
from gradsync.plan import Need, Plan
from gradsync.runtime.execute import Executor
from gradsync.transforms.loss_scaling import BUFFER, scale_loss

SCALE, GOOD, SKIPPED = range(3)  # of the buffer (`kernels/_loss_scale.py`)


def guarded(plan: Plan) -> Plan:
    """The plan with a loss scale; raises InputError for one that can't have it."""
    if plan.holding("scaler") is None:
        plan = scale_loss(plan)
        check(plan)
    return plan


class Scale:
    """The scale that a plan's updates divide by, which is the scaler's in every turn."""

    def __init__(self, executor: Executor, scaler: torch.amp.GradScaler):
        self.executor, self.scaler = executor, scaler
        self.state = executor.buffers[executor.plan.holding("scaler") or ""]
        (need,) = (op for op in executor.body if isinstance(op, Need) and BUFFER in op.after_previous)
        self.moved = dataclasses.replace(need, after=(), after_previous=(BUFFER,))  # waits for nothing else
        self.before = 0.0  # skipped steps, before the turn

    def begin(self) -> None:
        """Gradients of a turn come, whose loss has the scaler's scale; the updates of the turn before are done."""
        self.state[SCALE], self.state[GOOD] = self.scaler.get_scale(), 0.0
        self.before = float(self.state[SKIPPED])

    def skipped(self) -> bool:
        """Whether the last turn has applied nothing, which all ranks agree on; blocks until it is known."""
        self.executor.wait_for(self.moved, self.executor.turn)
        return float(self.state[SKIPPED]) > self.before

"""Synchronous SGD message by message: each all-reduce is followed by the update of its own range of the parameters.

Source: ByteScheduler (Peng et al., SOSP 2019) and P3 (Jayarajan et al., MLSys 2019), where a layer's next forward waits
for its own parameters alone. So messages overlap with backward, and those that are left with the next forward.

A range is updated once its gradients are summed, also while backward goes on in other layers: no model may use a
parameter in backward after its gradient is ready (as `x @ w.detach()` beside `x @ w` does).
"""

from __future__ import annotations

from typing import Any

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Collective, Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import UPDATE_LANE, backward, bounds, forward_by_layer, laid_out
from gradsync.updates._steps import SGD, applied, of_workers


def plan(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
    optimizer: Optimizer = SGD,
) -> Plan:
    """One role for all ranks: forward by layer, backward with its messages, each with its update."""
    tensors = laid_out(workload)
    updated = {f"update{number}": bounds(message, tensors) for number, message in enumerate(messages)}
    body: list[Any] = [*forward_by_layer(workload, tensors, updated)]
    updates = iter(updated)
    for op in backward(tensors, messages, ranks, algorithm, shape):
        body.append(op)
        if isinstance(op, Collective):
            (gradient,) = op.writes
            body += applied(
                *(optimizer, next(updates), gradient, ranks, tensors),
                requires="sum",
                after=(op.name,),
                lane=UPDATE_LANE,
            )
    return of_workers(name, workload, tensors, ranks, optimizer, body)

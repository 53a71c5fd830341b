"""Synchronous SGD message by message: each all-reduce is followed by the update of its own range of the parameters.

Source: ByteScheduler (Peng et al., SOSP 2019) and P3 (Jayarajan et al., MLSys 2019), where a layer's next forward waits
for its own parameters alone. So messages overlap with backward, and those that are left with the next forward.

A range is updated once its gradients are summed, also while backward goes on in other layers: no model may use a
parameter in backward after its gradient is ready (as `x @ w.detach()` beside `x @ w` does).
"""

from __future__ import annotations

from typing import Any

from gradsync.collectives import NATIVE
from gradsync.plan import Buffer, Collective, Local, Plan, Ref, Role
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import UPDATE_LANE, backward, bounds, forward_by_layer, laid_out


def plan(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
    lr: float = 0.01,
    momentum: float = 0.0,
) -> Plan:
    """One role for all ranks: forward by layer, backward with its messages, each with its update."""
    tensors = laid_out(workload)
    elements = tensors[-1].stop
    kept = ("parameter", "momentum") if momentum else ("parameter",)
    updated = {f"update{number}": bounds(message, tensors) for number, message in enumerate(messages)}
    body: list[Any] = [*forward_by_layer(workload, tensors, updated)]
    updates = iter(updated.items())
    for op in backward(tensors, messages, ranks, algorithm, shape):
        body.append(op)
        if isinstance(op, Collective):
            update, span = next(updates)
            body.append(
                Local(
                    name=update,
                    lane=UPDATE_LANE,
                    after=(op.name,),
                    kernel="sgd",
                    arguments={"lr": lr, "momentum": momentum, "scale": 1.0 / ranks},
                    reads=op.writes,
                    writes=tuple(Ref(buffer, *span) for buffer in kept),
                    requires="sum",
                )
            )
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tensors,
        buffers=tuple(Buffer(buffer, elements, workload.unit, role=buffer) for buffer in ("gradient", *kept)),
        roles=(Role("worker", tuple(range(ranks)), tuple(body)),),
    )

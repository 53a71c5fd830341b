"""Synchronous SGD with a decoupled all-reduce: its reduce-scatter behind backward, its all-gather behind forward.

Source: DeAR (Zhang et al., ICDCS 2023). All reduce-scatters come first; then the sums of gradients are gathered in the
order in which forward needs them, and every rank updates all of its parameters, layer by layer.

Differs from the paper: a gather begins when the one before it has ended, not when forward has reached the layers of
that one; and an update begins once its sums are there, not right before the forward of its layers, so that parameters
are whole when a run ends.
"""

from __future__ import annotations

from typing import Any

from gradsync.collectives import ALL_GATHER, NATIVE, POSTCONDITION, REDUCE_SCATTER
from gradsync.optimizers import Optimizer
from gradsync.plan import Collective, Plan, Ref
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import UPDATE_LANE, backward, bounds, forward_by_layer, laid_out, needed_first
from gradsync.updates._steps import SGD, applied, of_workers

HALVED = True


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
    """One role for all ranks: forward by layer, backward with its reduce-scatters, then all-gathers and updates."""
    tensors = laid_out(workload)
    ends: list[Any] = []
    for number in needed_first(workload, messages):
        gradient = Ref("gradient", *bounds(messages[number], tensors))
        ends.append(
            Collective(
                name=f"gather{number}",
                lane=messages[number].lane,
                after=(f"message{number}",),
                kind=ALL_GATHER,
                postcondition=POSTCONDITION[ALL_GATHER],
                algorithm=algorithm,
                shape=shape,
                reads=(gradient,),
                writes=(gradient,),
            )
        )
        ends += applied(
            *(optimizer, f"update{number}", gradient, ranks, tensors),
            requires="sum",
            after=(f"gather{number}",),
            lane=UPDATE_LANE,
        )
    updated = {f"update{number}": bounds(message, tensors) for number, message in enumerate(messages)}
    body = (
        *forward_by_layer(workload, tensors, updated),
        *backward(tensors, messages, ranks, algorithm, shape, REDUCE_SCATTER),
        *ends,
    )
    return of_workers(name, workload, tensors, ranks, optimizer, body)

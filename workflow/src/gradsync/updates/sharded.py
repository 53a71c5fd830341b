"""Synchronous SGD with a sharded update: reduce-scatter behind backward, all-gather before the next forward.

Each rank sums up its own piece of every message, updates that piece of the parameters, for which it alone has momentum
(ZeRO-1: Rajbhandari et al., SC 2020), in buffers of shards, and all gather the parameters. Forward of a layer begins
once its parameters are there, so that messages overlap with backward and with the next forward. Both halves together
send what an all-reduce sends.

A piece is updated once its gradients are summed, also while backward goes on in other layers: no model may use a
parameter in backward after its gradient is ready (as `x @ w.detach()` beside `x @ w` does).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradsync.collectives import ALL_GATHER, NATIVE, POSTCONDITION, REDUCE_SCATTER
from gradsync.errors import InputError
from gradsync.optimizers import Optimizer
from gradsync.plan import WORLD, Collective, Plan, Ref
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import UPDATE_LANE, backward, bounds, forward_by_layer, laid_out, needed_first
from gradsync.updates._steps import SGD, applied, of_workers

HALVED = True
PIECES = True


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
    """One role for all ranks: forward by layer, backward with its reduce-scatters, then updates and all-gathers.

    The gathers of a lane follow its reduce-scatters, those first that forward needs first, unless the schedule puts one
    between two of them. Raises InputError for a gather that follows a message which is not there.
    """
    if misplaced := [m.gathered_after for m in messages if not -1 < (m.gathered_after or 0) < len(messages)]:
        raise InputError(f"plan {name!r}: a gather follows message {misplaced[0]}: there are {len(messages)}")
    tensors = laid_out(workload)

    def gathered(number: int) -> Iterator[Any]:
        """What follows the reduce-scatter of a message: the update of this rank's piece, and the gather of all."""
        start, stop = bounds(messages[number], tensors)
        yield from applied(
            *(optimizer, f"update{number}", Ref("gradient", start, stop, (WORLD,)), ranks, tensors),
            requires="shard",
            after=(f"message{number}",),
            lane=UPDATE_LANE,
        )
        yield Collective(
            name=f"gather{number}",
            lane=messages[number].lane,
            after=(f"update{number}",),
            kind=ALL_GATHER,
            postcondition=POSTCONDITION[ALL_GATHER],
            algorithm=algorithm,
            shape=shape,
            reads=(Ref("parameter", start, stop),),
            writes=(Ref("parameter", start, stop),),
        )

    gathers = {f"gather{number}": bounds(message, tensors) for number, message in enumerate(messages)}
    body: list[Any] = [*forward_by_layer(workload, tensors, gathers)]
    sent = -1  # the last message so far
    for op in backward(tensors, messages, ranks, algorithm, shape, REDUCE_SCATTER):
        body.append(op)
        if isinstance(op, Collective):
            sent += 1
            for number, message in enumerate(messages):
                if message.gathered_after == sent:
                    body += gathered(number)
    for number in needed_first(workload, messages):
        if messages[number].gathered_after is None:
            body += gathered(number)
    ends = sorted(stop for _, stop in gathers.values())
    return of_workers(name, workload, tensors, ranks, optimizer, body, parts=ends)

"""Synchronous SGD with a sharded update: reduce-scatter behind backward, all-gather before the next forward.

Each rank sums up its own piece of every message, updates that piece of the parameters, for which it alone has momentum
(ZeRO-1: Rajbhandari et al., SC 2020), and all gather the parameters. Forward of a layer begins once its parameters are
there, so that messages overlap with backward and with the next forward. Both halves together send what an all-reduce
sends.

A piece is updated once its gradients are summed, also while backward goes on in other layers: no model may use a
parameter in backward after its gradient is ready (as `x @ w.detach()` beside `x @ w` does).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradsync.collectives import ALL_GATHER, NATIVE, POSTCONDITION, REDUCE_SCATTER
from gradsync.errors import InputError
from gradsync.plan import WORLD, Buffer, Collective, Local, Plan, Ref, Role
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import UPDATE_LANE, backward, bounds, forward_by_layer, laid_out, needed_first

HALVED = True


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
    """One role for all ranks: forward by layer, backward with its reduce-scatters, then updates and all-gathers.

    The gathers of a lane follow its reduce-scatters, those first that forward needs first, unless the schedule puts one
    between two of them. Raises InputError for a gather that follows a message which is not there.
    """
    if misplaced := [m.gathered_after for m in messages if not -1 < (m.gathered_after or 0) < len(messages)]:
        raise InputError(f"plan {name!r}: a gather follows message {misplaced[0]}: there are {len(messages)}")
    tensors = laid_out(workload)
    elements = tensors[-1].stop
    kept = ("parameter", "momentum") if momentum else ("parameter",)

    def gathered(number: int) -> Iterator[Any]:
        """What follows the reduce-scatter of a message: the update of this rank's piece, and the gather of all."""
        start, stop = bounds(messages[number], tensors)
        yield Local(
            name=f"update{number}",
            lane=UPDATE_LANE,
            after=(f"message{number}",),
            kernel="sgd",
            arguments={"lr": lr, "momentum": momentum, "scale": 1.0 / ranks},
            reads=(Ref("gradient", start, stop, (WORLD,)),),
            writes=tuple(Ref(buffer, start, stop, (WORLD,)) for buffer in kept),
            requires="shard",
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
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tensors,
        buffers=tuple(Buffer(buffer, elements, workload.unit, role=buffer) for buffer in ("gradient", *kept)),
        roles=(Role("worker", tuple(range(ranks)), tuple(body)),),
    )

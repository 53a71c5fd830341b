"""Synchronous SGD: all workers sum their gradients, then update alike (MG-WFBP Eq. 2, Algorithm 2).

Differs from the paper's Algorithm 2: the sum is divided by N (Eq. 2 has it, line 13 leaves it out, MG-E13).
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.plan import DTYPE_BYTES, Buffer, Collective, Local, Need, Operation, Plan, Ready, Ref, Role, Tensor
from gradsync.schedules import Message
from gradsync.workload import Workload


def plan(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    algorithm: str = NATIVE,
    lr: float = 0.01,
    momentum: float = 0.0,
) -> Plan:
    """One role for all ranks: forward, backward with its messages, update once all are through."""
    tensors, position, dtype = [], 0, workload.unit
    for layer in workload.layers:
        elements = layer.bytes // DTYPE_BYTES[dtype]
        tensors.append(Tensor(layer.name, position, position + elements))
        position += elements
    whole = {buffer: Ref(buffer, 0, position) for buffer in ("parameter", "gradient", "momentum")}

    body: list[Operation] = [Need(name="forward", reads=(whole["parameter"],), after_previous=("update",))]
    last = len(tensors) - 1
    numbered = list(enumerate(messages))
    for i, tensor in enumerate(tensors):
        body.append(
            Ready(
                name=f"ready:{tensor.name}",
                tensor=tensor.name,
                reads=(Ref("parameter", tensor.start, tensor.stop),),
                writes=(Ref("gradient", tensor.start, tensor.stop),),
            )
        )
        while numbered and (last if numbered[0][1].after_backward else numbered[0][1].last) <= i:
            number, message = numbered.pop(0)
            part = Ref("gradient", tensors[message.first].start, tensors[message.last].stop)
            body.append(
                Collective(
                    name=f"message{number}",
                    lane=message.lane,
                    after=(f"ready:{tensor.name}",),
                    algorithm=algorithm,
                    reads=(part,),
                    writes=(part,),
                )
            )
    final = {message.lane: f"message{number}" for number, message in enumerate(messages)}
    writes = (whole["parameter"], whole["momentum"]) if momentum else (whole["parameter"],)
    body.append(
        Local(
            name="update",
            after=tuple(final.values()),
            kernel="sgd",
            arguments={"lr": lr, "momentum": momentum, "scale": 1.0 / ranks},
            reads=(whole["gradient"],),
            writes=writes,
            requires="sum",
        )
    )
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tuple(tensors),
        buffers=tuple(Buffer(ref.buffer, position, dtype) for ref in (whole["gradient"], *writes)),
        roles=(Role("worker", tuple(range(ranks)), tuple(body)),),
    )

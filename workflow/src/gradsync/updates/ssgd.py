"""Synchronous SGD: all workers sum their gradients, then update alike (MG-WFBP Eq. 2, Algorithm 2).

Differs from the paper's Algorithm 2: the sum is divided by N (Eq. 2 has it, line 13 leaves it out, MG-E13).

Beyond the paper: gradients may travel in a narrower type than they are computed in (`wire`), a loss scale may guard
float16 (`loss_scaling`), and batch-norm statistics follow rank 0's as in PyTorch DDP. DDP broadcasts them before
forward; here they travel as the first message of the backward pass, which the next forward sees alike.
"""

from __future__ import annotations

from gradsync import collectives
from gradsync.collectives import NATIVE
from gradsync.plan import DTYPE_BYTES, Buffer, Collective, Local, Need, Operation, Plan, Ready, Ref, Role, Tensor, piece
from gradsync.schedules import DEFAULT_LANE, Message
from gradsync.workload import Workload

SCALER = 3  # elements: loss scale, good steps in a row, skipped steps


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
    wire: str = "",
    loss_scaling: bool = False,
    statistics: bool = True,
) -> Plan:
    """One role for all ranks: forward, backward with its messages, update once all are through.

    `algorithm` sums the gradients, over levels of these sizes (`shape`; empty: all ranks alike). Where it has a server,
    each message has its own. `wire`: the type that gradients travel in (empty: their own). `statistics`: rank 0's
    batch-norm statistics are broadcast (DDP's default), else every rank keeps its own.
    """
    tensors, position, dtype = [], 0, workload.unit
    for layer in workload.layers:
        elements = layer.bytes // DTYPE_BYTES[dtype]
        tensors.append(Tensor(layer.name, position, position + elements))
        position += elements
    whole = {buffer: Ref(buffer, 0, position) for buffer in ("parameter", "gradient", "momentum")}
    buffers = [Buffer("gradient", position, dtype), Buffer("parameter", position, dtype)]
    if momentum:
        buffers.append(Buffer("momentum", position, dtype))
    narrow = bool(wire) and wire != dtype
    if narrow:
        buffers.append(Buffer("wire", position, wire))

    body: list[Operation] = [Need(name="forward", reads=(whole["parameter"],), after_previous=("update",))]
    final: dict[str, str] = {}
    if workload.statistics and statistics:
        buffers.append(Buffer("statistics", workload.statistics))
        part = (Ref("statistics", 0, workload.statistics),)
        body = [
            Need(name="forward", reads=(whole["parameter"],), writes=part, after_previous=("update", "statistics")),
            Collective(
                name="statistics",
                lane=messages[0].lane if messages else DEFAULT_LANE,
                kind="broadcast",
                after=("forward",),
                reads=part,
                writes=part,
                postcondition="copy",
            ),
        ]
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
            start, stop = piece(tensors[message.first].start, tensors[message.last].stop, *message.part)
            gradient = Ref("gradient", start, stop)
            part = (Ref("wire", start, stop),) if narrow else (gradient,)
            after: tuple[str, ...] = (f"ready:{tensor.name}", *(f"message{other}" for other in message.after))
            final[message.lane] = f"message{number}"
            if narrow:
                # divided before it is sent, as a sum of N may leave the range of the narrower type
                scale = {"scale": 1.0 / ranks}
                narrowed = Local(
                    name=f"narrow{number}",
                    lane=message.lane,
                    after=after,
                    kernel="cast",
                    arguments=scale,
                    reads=(gradient,),
                    writes=part,
                )
                body.append(narrowed)
                after = ()
            body.append(
                Collective(
                    name=f"message{number}",
                    lane=message.lane,
                    after=after,
                    algorithm=algorithm,
                    shape=shape,
                    root=collectives.server(algorithm, number, ranks),
                    reads=part,
                    writes=part,
                )
            )
            if narrow:
                final[message.lane] = f"widen{number}"
                body.append(
                    Local(
                        name=f"widen{number}",
                        lane=message.lane,
                        kernel="cast",
                        arguments={"scale": 1.0},
                        reads=part,
                        writes=(gradient,),
                    )
                )
    writes = (whole["parameter"], whole["momentum"]) if momentum else (whole["parameter"],)
    if loss_scaling:
        buffers.append(Buffer("scaler", SCALER))
        writes = (*writes, Ref("scaler", 0, SCALER))
    body.append(
        Local(
            name="update",
            after=tuple(final.values()),
            kernel="sgd_scaled" if loss_scaling else "sgd",
            arguments={"lr": lr, "momentum": momentum, "scale": 1.0 if narrow else 1.0 / ranks},
            reads=(whole["gradient"],),
            writes=writes,
            requires="sum",
        )
    )
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tuple(tensors),
        buffers=tuple(buffers),
        roles=(Role("worker", tuple(range(ranks)), tuple(body)),),
    )

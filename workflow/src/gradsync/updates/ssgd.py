"""Synchronous SGD: all workers sum their gradients, then update alike (MG-WFBP Eq. 2, Algorithm 2).

Differs from the paper's Algorithm 2: the sum is divided by N (Eq. 2 has it, line 13 leaves it out, MG-E13).

Beyond the paper: gradients may travel in a narrower type than they are computed in (`wire`), a loss scale may guard
float16 (`loss_scaling`), and batch-norm statistics follow rank 0's as in PyTorch DDP. DDP broadcasts them before
forward; here they travel as the first message of the backward pass, which the next forward sees alike.

With `accumulate` a step has several micro-batches: the passes of all but the last only add to the gradient, on their
own ranks, so that what is sent overlaps with the last backward alone. With `clip_norm` the update waits for the norm of
the whole mean gradient, hence for every message (Pascanu et al., "On the difficulty of training recurrent neural
networks", ICML 2013, Algorithm 1); the norm takes the workload's `norm_seconds`.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsync import collectives
from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.kernels.sgd_scaled import SCALER_ELEMENTS
from gradsync.plan import DTYPE_BYTES, Buffer, Collective, Local, Need, Plan, Ready, Ref, Role, Tensor, piece
from gradsync.plan.workload import Workload
from gradsync.schedules import DEFAULT_LANE, Message


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
    accumulate: int = 1,
    clip_norm: float | None = None,
) -> Plan:
    """One role for all ranks: forward, backward with its messages, update once all are through.

    `algorithm` sums the gradients, over levels of these sizes (`shape`; empty: all ranks alike). Where it has a server,
    each message has its own. `wire`: the type that gradients travel in (empty: their own). `statistics`: rank 0's
    batch-norm statistics are broadcast (DDP's default), else every rank keeps its own; with `accumulate` micro-batches
    a step they are those of the last one. `clip_norm`: what the norm of the mean gradient is cut to (None: nothing).

    Raises InputError for a number of micro-batches or a norm that makes no sense.
    """
    if accumulate < 1:
        raise InputError(f"accumulate {accumulate}: a step has at least 1 micro-batch")
    if clip_norm is not None and not 0 < clip_norm < float("inf"):
        raise InputError(f"clip_norm {clip_norm}: must be positive and finite; leave it out to clip nothing")
    tensors, position, dtype = [], 0, workload.unit
    for layer in workload.layers:
        elements = layer.bytes // DTYPE_BYTES[dtype]
        tensors.append(Tensor(layer.name, position, position + elements))
        position += elements
    whole = {buffer: Ref(buffer, 0, position) for buffer in ("parameter", "gradient", "momentum")}
    buffers = [Buffer(name, position, dtype, role=name) for name in ("gradient", "parameter")]
    if momentum:
        buffers.append(Buffer("momentum", position, dtype, role="momentum"))
    narrow = bool(wire) and wire != dtype
    if narrow:
        buffers.append(Buffer("wire", position, wire))

    shared = bool(workload.statistics) and statistics
    part = (Ref("statistics", 0, workload.statistics),) if shared else ()
    body: list[Any] = _micro_batches(accumulate - 1, whole, part)
    body.append(Need(name="forward", reads=(whole["parameter"],), writes=part))
    previous = ("update", "statistics") if shared else ("update",)
    body[0] = dataclasses.replace(body[0], after_previous=previous)
    final: dict[str, str] = {}
    if shared:
        buffers.append(Buffer("statistics", workload.statistics, role="statistics"))
        body.append(
            Collective(
                name="statistics",
                lane=messages[0].lane if messages else DEFAULT_LANE,
                kind="broadcast",
                after=("forward",),
                reads=part,
                writes=part,
                postcondition="copy",
            )
        )
    last = len(tensors) - 1
    numbered = list(enumerate(messages))
    for i, tensor in enumerate(tensors):
        body.append(
            Ready(
                name=f"ready:{tensor.name}",
                tensor=tensor.name,
                reads=(Ref("parameter", tensor.start, tensor.stop),),
                writes=(Ref("gradient", tensor.start, tensor.stop),),
                adds=accumulate > 1,
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
        buffers.append(Buffer("scaler", SCALER_ELEMENTS, role="scaler"))
        writes = (*writes, Ref("scaler", 0, SCALER_ELEMENTS))
    # those of a narrow message were divided by the ranks before
    arguments = {"lr": lr, "momentum": momentum, "scale": 1.0 / (accumulate if narrow else ranks * accumulate)}
    reads: tuple[Ref, ...] = (whole["gradient"],)
    after_all = tuple(final.values())
    if clip_norm is not None:
        buffers.append(Buffer("norm", 1, dtype if DTYPE_BYTES[dtype] >= DTYPE_BYTES["float32"] else "float32"))
        found = Ref("norm", 0, 1)
        body.append(
            Local(
                name="norm",
                after=after_all,
                kernel="norm",
                reads=reads,
                writes=(found,),
                requires="sum",
            )
        )
        reads, after_all, arguments = (*reads, found), ("norm",), arguments | {"clip": clip_norm}
    body.append(
        Local(
            name="update",
            after=after_all,
            kernel="sgd_scaled" if loss_scaling else "sgd",
            arguments=arguments,
            reads=reads,
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


def _micro_batches(count: int, whole: dict[str, Ref], statistics: tuple[Ref, ...]) -> list[Any]:
    """Forward and backward of so many micro-batches of which nothing is sent; the first begins the sum."""
    body: list[Any] = []
    for number in range(count):
        body.append(Need(name=f"forward{number}", reads=(whole["parameter"],), writes=statistics))
        reads, writes = (whole["parameter"],), (whole["gradient"],)
        body.append(Ready(name=f"backward{number}", tensor=None, adds=number > 0, reads=reads, writes=writes))
    return body

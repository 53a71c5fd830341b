"""What updates of a whole model have in common: its gradients laid out, its forward, its backward with messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gradsync import collectives
from gradsync.plan import DTYPE_BYTES, Collective, Need, Ready, Ref, Tensor, piece
from gradsync.plan.workload import Workload
from gradsync.schedules import Message


def laid_out(workload: Workload) -> tuple[Tensor, ...]:
    """The gradient tensors of a workload, one after the other in backward order."""
    width, position = DTYPE_BYTES[workload.unit], 0
    tensors = []
    for layer in workload.layers:
        elements = layer.bytes // width
        tensors.append(Tensor(layer.name, position, position + elements))
        position += elements
    return tuple(tensors)


def forward(elements: int, after_previous: tuple[str, ...]) -> Need:
    """Forward of the whole model, once those operations of the turn before have finished."""
    return Need(name="forward", reads=(Ref("parameter", 0, elements),), after_previous=after_previous)


def backward(
    tensors: tuple[Tensor, ...], messages: tuple[Message, ...], ranks: int, algorithm: str, shape: tuple[int, ...]
) -> Iterator[Any]:
    """The gradient of each tensor as it is ready, and the messages, in order, as soon as all of theirs are.

    `algorithm` sums the gradients, over levels of these sizes (`shape`; empty: all ranks alike). If it has a server,
    each message has its own.
    """
    unsent = list(enumerate(messages))
    for i, tensor in enumerate(tensors):
        yield Ready(
            name=f"ready:{tensor.name}",
            tensor=tensor.name,
            reads=(Ref("parameter", tensor.start, tensor.stop),),
            writes=(Ref("gradient", tensor.start, tensor.stop),),
        )
        while unsent and (len(tensors) - 1 if unsent[0][1].after_backward else unsent[0][1].last) <= i:
            number, message = unsent.pop(0)
            start, stop = piece(tensors[message.first].start, tensors[message.last].stop, *message.part)
            gradient = (Ref("gradient", start, stop),)
            yield Collective(
                name=f"message{number}",
                lane=message.lane,
                after=(f"ready:{tensor.name}", *(f"message{other}" for other in message.after)),
                algorithm=algorithm,
                shape=shape,
                root=collectives.server(algorithm, number, ranks),
                reads=gradient,
                writes=gradient,
            )


def last_messages(operations: list[Any]) -> tuple[str, ...]:
    """The last message of each lane: once these are through, all are."""
    return tuple({op.lane: op.name for op in operations if isinstance(op, Collective)}.values())

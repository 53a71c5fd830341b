"""What updates of a whole model have in common: its gradients laid out, its forward, its backward with messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gradsync import collectives
from gradsync.collectives import ALL_REDUCE, POSTCONDITION
from gradsync.plan import DTYPE_BYTES, Collective, Kind, Need, Ready, Ref, Tensor, piece
from gradsync.plan.workload import Workload
from gradsync.schedules import Message

UPDATE_LANE = "update"  # of updates of parts of the parameters, beside messages and computation


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


def forward_by_layer(
    workload: Workload, tensors: tuple[Tensor, ...], parameters: Mapping[str, tuple[int, int]]
) -> Iterator[Need]:
    """Forward layer by layer, each once the operations of the turn before that give it its parameters have finished.

    `parameters`: these operations, each with the range that it gives.
    """
    waited: set[str] = set()
    for number in workload.forward_order():
        tensor = tensors[number]
        waits = [
            name
            for name, (start, stop) in parameters.items()
            if start < tensor.stop and tensor.start < stop and name not in waited
        ]
        waited.update(waits)
        yield Need(
            name=f"forward:{tensor.name}",
            layer=tensor.name,
            reads=(Ref("parameter", tensor.start, tensor.stop),),
            after_previous=tuple(waits),
        )


def bounds(message: Message, tensors: tuple[Tensor, ...]) -> tuple[int, int]:
    """The elements of a message."""
    return piece(tensors[message.first].start, tensors[message.last].stop, *message.part)


def needed_first(workload: Workload, messages: tuple[Message, ...]) -> list[int]:
    """Numbers of the messages, in the order in which forward first needs a layer of each."""
    place = {layer: position for position, layer in enumerate(workload.forward_order())}
    return sorted(
        range(len(messages)),
        key=lambda number: min(place[i] for i in range(messages[number].first, messages[number].last + 1)),
    )


def backward(
    tensors: tuple[Tensor, ...],
    messages: tuple[Message, ...],
    ranks: int,
    algorithm: str,
    shape: tuple[int, ...],
    kind: Kind = ALL_REDUCE,
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
            gradient = (Ref("gradient", *bounds(message, tensors)),)
            yield Collective(
                name=f"message{number}",
                lane=message.lane,
                after=(f"ready:{tensor.name}", *(f"message{other}" for other in message.after)),
                kind=kind,
                postcondition=POSTCONDITION[kind],
                algorithm=algorithm,
                shape=shape,
                root=collectives.server(algorithm, number, ranks),
                reads=gradient,
                writes=gradient,
            )


def last_messages(operations: list[Any]) -> tuple[str, ...]:
    """The last message of each lane: once these are through, all are."""
    return tuple({op.lane: op.name for op in operations if isinstance(op, Collective)}.values())

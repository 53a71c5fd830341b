"""Names and sizes of the gradients of a recording: from the shapes in it, an execution trace, or the model itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gradsync.errors import InputError
from gradsync.interchange.passes import Gradient
from gradsync.interchange.tensors import dtype_of, elements_of

Shape = tuple[int, ...]


class Size(NamedTuple):
    """A gradient: the name of its layer, its elements and their type."""

    name: str
    elements: int
    dtype: str


class Known(NamedTuple):
    """A parameter of a model, in the order in which autograd makes its gradients."""

    name: str
    shape: Shape
    dtype: str


def sizes(
    gradients: Sequence[Gradient],
    where: str,
    *,
    recorded: Mapping[int, tuple[Shape, str]] | Sequence[tuple[Shape, str]] = (),
    model: Sequence[Known] | None = None,
) -> list[Size]:
    """Those of a step's gradients. `recorded`: what an execution trace says, by the identity of events or in order.

    Without a model their names are numbers. Raises InputError if sizes are nowhere, or if what tells them disagrees.
    """
    told = [_recorded(gradient, number, recorded) for number, gradient in enumerate(gradients)]
    if model is None:
        unknown = [number for number, each in enumerate(told) if each is None]
        if unknown:
            raise InputError(
                f"trace {where}: gradient {unknown[0]} has no size ({len(unknown)} such): record with "
                "record_shapes=True, or give --execution-trace or --model"
            )
        digits = len(str(len(told) - 1))
        return [
            Size(f"gradient{number:0{digits}}", elements_of(shape) or 1, dtype)
            for number, (shape, dtype) in enumerate(each for each in told if each is not None)
        ]
    if len(model) != len(gradients):
        raise InputError(
            f"trace {where}: has {len(gradients)} gradients, and the model of --model {len(model)}: it is another "
            "model, or takes another way"
        )
    for number, (known, each) in enumerate(zip(model, told, strict=True)):
        if each is not None and each[0] != known.shape:
            raise InputError(
                f"trace {where}: gradient {number} has shape {list(each[0])}, and {known.name!r} of --model "
                f"{list(known.shape)}: it is another model, or takes another way"
            )
    return [
        Size(known.name, elements_of(known.shape) or 1, known.dtype if each is None else each[1])
        for known, each in zip(model, told, strict=True)
    ]


def _recorded(
    gradient: Gradient, number: int, recorded: Mapping[int, tuple[Shape, str]] | Sequence[tuple[Shape, str]]
) -> tuple[Shape, str] | None:
    """Shape and type of a gradient as its event has them, else as an execution trace has them."""
    event = gradient.event
    known = shape_of(event.shapes, event.dtypes)
    if known is not None:
        return known
    if isinstance(recorded, Mapping):
        return recorded.get(event.identity) if event.identity is not None else None
    return recorded[number] if number < len(recorded) else None


def shape_of(shapes: Sequence[object], dtypes: Sequence[str]) -> tuple[Shape, str] | None:
    """Shape and type of the first input, which is the gradient; None if they were not recorded."""
    shape, dtype = (shapes[0] if shapes else None), dtype_of(dtypes[0] if dtypes else None)
    if elements_of(shape) is None or dtype is None:
        return None
    assert isinstance(shape, list | tuple)
    return tuple(shape), dtype

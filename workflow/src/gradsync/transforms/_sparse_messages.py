"""One message on the way of a sparse collective, as operations of a plan.

A rank encodes its slice of the sum over `inside`, its own gradient if there is none. The operations stay on the lane of
the message, one after the other: the next message's selection begins once this message has been summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync.collectives import ALL_GATHER, NATIVE, POSTCONDITION, REDUCE_SCATTER
from gradsync.kernels import ENCODE
from gradsync.plan import Axis, Collective, Kind, Local, Ref
from gradsync.sparse import Compression, Way

VALUES, INDICES, RESIDUAL = "values", "indices", "residual"


def places(way: Way, k: int) -> int:
    """Values that the ranks of `between` send of a message together, k each: what a rank has room for."""
    return k * way.between.size


def carried(message: Collective, compression: Compression, start: int, k: int) -> Iterator[Any]:
    """What carries a message, k values of each rank, instead of an all-reduce.

    Its values and indices lie from `start` on in the buffers of those names. The last operation has the name of `last`.
    """
    way = compression.way
    inside, between = _axis(way.inside), way.between.name
    (whole,) = message.writes
    own = whole if inside is None else whole._replace(mine=(inside,))
    sent = [Ref(name, start, start + places(way, k)) for name in (VALUES, INDICES)]

    def over(axis: str, verb: str, kind: Kind, ref: Ref) -> Collective:
        return dataclasses.replace(
            message,
            name=named(verb, message.name),
            after=(),
            after_previous=(),
            kind=kind,
            postcondition=POSTCONDITION[kind],
            algorithm=NATIVE,
            shape=(),
            root=0,
            over=axis,
            reads=(ref,),
            writes=(ref,),
        )

    operations: list[Any] = []
    if inside is not None:
        operations.append(over(inside, "scatter", REDUCE_SCATTER, whole))
    residual = (own._replace(buffer=RESIDUAL),) if compression.feedback else ()
    operations.append(
        Local(
            name=named("encode", message.name),
            lane=message.lane,
            kernel=f"{ENCODE}{compression.compressor}",
            reads=(own,),
            writes=(*(ref._replace(mine=(between,)) for ref in sent), *residual),
        )
    )
    operations += [over(between, f"gather_{ref.buffer}", ALL_GATHER, ref) for ref in sent]
    operations.append(
        Local(
            name=named("decode", message.name),
            lane=message.lane,
            kernel="decode_sum",
            reads=tuple(sent),
            writes=(own,),
            postcondition="sparse_sum",
        )
    )
    if inside is not None:
        operations.append(over(inside, "gather", ALL_GATHER, whole))
    first, *others = operations
    yield dataclasses.replace(first, after=message.after, after_previous=message.after_previous)
    yield from others


def last(message: str, way: Way) -> str:
    """The name of the operation after which a message has arrived."""
    return named("decode" if way.inside is None else "gather", message)


def named(verb: str, message: str) -> str:
    """`encode3` of `message3`, `encode:sum` of `sum`."""
    number = message.removeprefix("message")
    return f"{verb}{number}" if number.isdigit() else f"{verb}:{message}"


def _axis(axis: Axis | None) -> str | None:
    return None if axis is None else axis.name

"""One message on the way of a sparse collective, as operations of a plan.

A rank encodes its slice of the sum over `inside`, its own gradient if there is none. The operations stay on the lane of
the message, one after the other: the next message's selection begins once this message has been summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from gradsync.collectives import ALL_GATHER, REDUCE_SCATTER
from gradsync.kernels import KERNELS
from gradsync.plan import Axis, Collective, Local, Ref
from gradsync.sparse import Compression, Way
from gradsync.transforms._edits import named, over

RESIDUAL = "residual"


def carried(message: Collective, compression: Compression, sent: Sequence[Ref]) -> Iterator[Any]:
    """What carries a message, as values and indices or as codes and scales, instead of an all-reduce.

    What all ranks send lies in `sent`, each rank's in its piece over `between`. The last operation has the name of
    `last`.
    """
    way = compression.way
    inside, between = _axis(way.inside), way.between.name
    (whole,) = message.writes
    own = whole if inside is None else whole._replace(mine=(inside,))
    encode, decode = compression.kernels
    counts = {"first": whole.start, "longest": int(compression.longest(whole.stop - whole.start))}

    operations: list[Any] = []
    if inside is not None:
        operations.append(over(inside, message, "scatter", REDUCE_SCATTER, whole))
    residual = (own._replace(buffer=RESIDUAL),) if compression.feedback else ()
    operations.append(
        Local(
            name=named("encode", message.name),
            lane=message.lane,
            kernel=encode,
            arguments=_arguments(encode, compression, counts),
            reads=(own,),
            writes=(*(ref._replace(mine=(between,)) for ref in sent), *residual),
        )
    )
    operations += [over(between, message, f"gather_{ref.buffer}", ALL_GATHER, ref) for ref in sent]
    operations.append(
        Local(
            name=named("decode", message.name),
            lane=message.lane,
            kernel=decode,
            arguments=_arguments(decode, compression, counts),
            reads=tuple(sent),
            writes=(own,),
            postcondition="sparse_sum",
        )
    )
    if inside is not None:
        operations.append(over(inside, message, "gather", ALL_GATHER, whole))
    first, *others = operations
    yield dataclasses.replace(first, after=message.after, after_previous=message.after_previous)
    yield from others


def _arguments(kernel: str, compression: Compression, counts: dict[str, int]) -> dict[str, float]:
    """What the kernel takes of the compressor's options, and of what the message is."""
    known = KERNELS[kernel].arguments
    return {name: float(value) for name, value in (*compression.options, *counts.items()) if name in known}


def last(message: str, way: Way) -> str:
    """The name of the operation after which a message has arrived."""
    return named("decode" if way.inside is None else "gather", message)


def _axis(axis: Axis | None) -> str | None:
    return None if axis is None else axis.name

"""What operations work on: gradient tensors, the buffers of a rank, ranges of their elements.

Every buffer has a *role*, which says what it may hold. Buffers that are keyed by parameters (gradient, parameter,
momentum, residual, centre) are flat and hold the tensors in backward order: the gradient that is ready first lies
first, so that every merged message is one contiguous range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from pydantic import ConfigDict

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}
BYTES = "uint8"  # gradients of an unknown type, as many bytes: they are planned and simulated, never executed
CLOSED = ConfigDict(extra="forbid")

BufferRole = Literal[
    "gradient", "parameter", "momentum", "residual", "centre", "statistics", "scaler", "scratch", "state"
]
KEYED = ("gradient", "parameter", "momentum", "residual", "centre")  # roles of buffers that are keyed by parameters
WORLD = "world"  # the axis of all ranks
PASSING = ("gradient", "scratch")  # roles of buffers that are written before they are read in every turn


class Ref(NamedTuple):
    """Elements [start, stop) of a buffer; with `mine` only the executing rank's piece over these axes (`mesh.py`)."""

    buffer: str
    start: int
    stop: int
    mine: tuple[str, ...] = ()


def piece(start: int, stop: int, index: int, pieces: int) -> tuple[int, int]:
    """Bounds of one of `pieces` contiguous pieces of [start, stop), sizes as even as they can be."""
    length = stop - start
    return start + index * length // pieces, start + (index + 1) * length // pieces


@dataclass(frozen=True)
class Tensor:
    """A gradient tensor: its place in every buffer that is keyed by parameters."""

    __pydantic_config__ = CLOSED
    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Buffer:
    """A named flat array of each rank; `shared` means one for all ranks (shared memory).

    `role` says what it holds: one of `KEYED`; `statistics` of batch normalisation, which forward changes; the `scaler`
    of the loss; `scratch`, which is written before it is read; or `state`, anything that the caller sets beforehand.

    With `mine` it is one of shards: a rank has its pieces over these axes alone, of each of the parts that end at
    `ends` (`shards.py`), and local operations alone touch it.
    """

    __pydantic_config__ = CLOSED
    name: str
    elements: int
    dtype: str = "float32"
    shared: bool = False
    role: BufferRole = "scratch"
    mine: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()

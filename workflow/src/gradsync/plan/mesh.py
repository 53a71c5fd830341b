"""The mesh: how the ranks of a plan lie on named axes, whose pieces are whose, who communicates with whom.

On a mesh of axes `node` (2 places) and `local` (4) rank 5 is the local rank 1 of node 1: the last axis is the nearest,
as in PyTorch's DeviceMesh. A collective *over* an axis is one of each group of ranks that differ in their place on that
axis alone. A rank's piece of a range over an axis is that of its place on the axis; over several axes it is cut once
for each, in the order in which they are named. Every plan has the axis `world`, of all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from gradsync.errors import InputError
from gradsync.plan.buffers import CLOSED, WORLD, Ref, piece

Group = tuple[int, ...]


@dataclass(frozen=True)
class Axis:
    """A named axis of so many places."""

    __pydantic_config__ = CLOSED
    name: str
    size: int


@dataclass(frozen=True)
class Mesh:
    """`ranks` ranks on `axes`, the outermost first; without axes they lie on `world` alone."""

    ranks: int
    axes: tuple[Axis, ...] = ()

    def refuse(self) -> None:
        """Raises InputError unless every rank has one place."""
        names = [WORLD, *(axis.name for axis in self.axes)]
        if any(axis.size < 1 for axis in self.axes) or len(set(names)) < len(names):
            raise InputError(f"mesh: each axis has a name of its own, none is {WORLD!r}, and at least one place")
        if self.axes and prod(axis.size for axis in self.axes) != self.ranks:
            sizes = " x ".join(f"{axis.size} ({axis.name})" for axis in self.axes)
            raise InputError(f"mesh: {sizes} places for {self.ranks} ranks: they must be as many")

    @property
    def places(self) -> dict[str, int]:
        """Name -> places of the axes but `world`."""
        return {axis.name: axis.size for axis in self.axes}

    @cached_property
    def strides(self) -> dict[str, tuple[int, int]]:
        """Name -> (ranks from a place to the next on that axis, places)."""
        stride, strides = 1, {WORLD: (1, self.ranks)}
        for axis in reversed(self.axes):
            strides[axis.name] = stride, axis.size
            stride *= axis.size
        return strides

    def refuse_axis(self, name: str) -> None:
        """Raises InputError if there is no such axis."""
        if name not in self.strides:
            raise InputError(f"axis {name!r} does not exist; the plan has: {', '.join(self.strides)}")

    def size(self, axis: str) -> int:
        """The places of an axis."""
        return self.strides[axis][1]

    def place(self, rank: int, axis: str) -> int:
        """Where a rank lies on an axis."""
        stride, size = self.strides[axis]
        return rank // stride % size

    def group(self, rank: int, axis: str = WORLD) -> Group:
        """The ranks that differ from `rank` in their place on an axis alone, in its order."""
        stride, size = self.strides[axis]
        first = rank - self.place(rank, axis) * stride
        return tuple(range(first, first + stride * size, stride))

    def groups(self, axis: str = WORLD) -> Iterator[Group]:
        """All groups of an axis, by their first rank."""
        for rank in range(self.ranks):
            if self.place(rank, axis) == 0:
                yield self.group(rank, axis)

    def bounds(self, ref: Ref, rank: int) -> tuple[int, int]:
        """The elements [start, stop) of a range that a rank takes."""
        start, stop = ref.start, ref.stop
        for axis in ref.mine:
            start, stop = piece(start, stop, self.place(rank, axis), self.size(axis))
        return start, stop

    def pieces(self, ref: Ref) -> int:
        """How many pieces a range is cut into."""
        return prod(self.size(axis) for axis in ref.mine)

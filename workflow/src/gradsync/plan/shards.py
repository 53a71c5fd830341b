"""Buffers of which each rank holds its own pieces alone: what a rank has of one, and where a range lies in that.

Such a buffer is made of *parts*, one after the other, and a rank has its piece of each part over the axes `mine` of the
buffer (ZeRO-1: Rajbhandari et al., SC 2020). Ranges are counted in the whole buffer on every rank, as everywhere in a
plan; a rank's array has its pieces one after the other, and no gaps.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from gradsync.plan.buffers import Buffer, Ref
from gradsync.plan.mesh import Mesh


class Held(NamedTuple):
    """Elements [start, stop) of the whole buffer, which a rank has from element `at` of its own array on."""

    start: int
    stop: int
    at: int


class Shards:
    """What the ranks of a mesh have of `buffers`, by name."""

    def __init__(self, mesh: Mesh, buffers: dict[str, Buffer]):
        self.mesh, self.buffers = mesh, buffers
        self._held: dict[tuple[str, int], dict[Ref, Held]] = {}

    def held(self, name: str, rank: int) -> tuple[Held, ...]:
        """The pieces that a rank has, one after the other."""
        buffer = self.buffers[name]
        return tuple(self._pieces(buffer, rank).values()) if buffer.mine else (Held(0, buffer.elements, 0),)

    def elements(self, name: str, rank: int) -> int:
        """The elements that a rank has."""
        last = self.held(name, rank)[-1]
        return last.at + last.stop - last.start

    def place(self, ref: Ref, rank: int) -> tuple[int, int]:
        """The elements [start, stop) of its own array that a rank takes; of shards, a range is one of their parts."""
        buffer = self.buffers[ref.buffer]
        if not buffer.mine:
            return self.mesh.bounds(ref, rank)
        held = self._pieces(buffer, rank)[ref]
        return held.at, held.at + held.stop - held.start

    def _pieces(self, buffer: Buffer, rank: int) -> dict[Ref, Held]:
        """Part -> the piece of it that a rank has."""
        key = buffer.name, rank
        if key not in self._held:
            at, pieces = 0, {}
            for part in parts(buffer):
                start, stop = self.mesh.bounds(part, rank)
                pieces[part] = Held(start, stop, at)
                at += stop - start
            self._held[key] = pieces
        return self._held[key]


def parts(buffer: Buffer) -> list[Ref]:
    """The parts of a buffer of shards, each as the range by which operations name a rank's piece of it."""
    return [Ref(buffer.name, start, stop, buffer.mine) for start, stop in pairwise((0, *buffer.ends))]

"""The cost of a pipelined collective whose chunks have a size: a longer message has more of them, not longer ones.

With a fixed number of chunks the cost of a pipeline is a line (`flow_level.py`). If the chunks are as long as the
buffers of the library, each length of message has a line of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from gradsync import collectives
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds, Topology

FULL = 2  # a pipeline is full after so many chunks for each place of each level
Lines = Callable[[int], Linear]


@dataclass(frozen=True)
class Pipelined:
    """T(m) of a pipeline in chunks of at most `chunk_bytes`. Raises InputError for a collective that is no pipeline."""

    name: str
    topology: Topology
    speeds: Speeds
    chunk_bytes: float
    flows: Mapping[str, float] | None = None
    lines: Lines = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.chunk_bytes > 0:
            raise InputError(f"chunks of {self.chunk_bytes:g} bytes: more than 0")
        collectives.pieces(self.name, self.topology.shape, chunks=1)  # refuses what is no pipeline
        object.__setattr__(self, "lines", lru_cache(maxsize=1024)(self._line))

    def _line(self, chunks: int) -> Linear:
        """Of so many chunks; once a pipeline is full, each chunk more is one more round that is like the last one."""
        full = FULL * sum(self.topology.shape)
        if chunks <= full + 1:
            return flow_level.cost(self.name, self.topology, self.speeds, chunks=chunks, flows=self.flows).line
        pieces = [collectives.pieces(self.name, self.topology.shape, each) for each in (full, full + 1, chunks)]
        less, more = self.lines(full), self.lines(full + 1)
        further = chunks - full
        a = less.a + further * (more.a - less.a)
        b = (less.b * pieces[0] + further * (more.b * pieces[1] - less.b * pieces[0])) / pieces[2]
        return Linear(a, b, more.source)

    def _of(self, size: float) -> Linear:
        return self.lines(collectives.get(self.name).chunks_of(size, self.chunk_bytes))

    def seconds(self, size: Any) -> Any:
        """T(m)."""
        return _each(lambda one: self._of(one).seconds(one), size)

    def startup_seconds(self, size: Any) -> Any:
        """The start-ups of all rounds."""
        return _each(lambda one: self._of(one).a, size)

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """In one message: shorter ones have fewer chunks, and the links wait longer for the first and the last."""
        return float(self._of(total).least_transfer_seconds(total, low))

    def describe(self) -> str:
        """Collective, topology and chunks."""
        return f"{self.name} on {self.topology.name}, chunks of {self.chunk_bytes:g} bytes, flow level"


def _each(function: Callable[[float], float], size: Any) -> Any:
    sizes = np.asarray(size, float)
    return np.array([function(float(one)) for one in sizes.ravel()]).reshape(sizes.shape)[()]

"""Parts of one chip: each part has memory of its own and reads that of any other over the chip's mesh."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradsync.topologies import Equipment, Topology, refuse_numbers


@dataclass(frozen=True)
class Numa(Topology):
    """`parts` parts; links 0 .. parts-1 are what a part can write, then what it can read, at a time."""

    kinds = ("mesh",)
    parts: int

    def __post_init__(self) -> None:
        refuse_numbers(self, 1, "parts")

    @property
    def shape(self) -> tuple[int, ...]:
        """One level."""
        return (self.parts,)

    def link_kind(self) -> np.ndarray:
        """All alike."""
        return np.zeros(2 * self.parts, np.int8)

    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """Out of one part, into another."""
        return np.column_stack([source, self.parts + destination])

    def equipment(self) -> Equipment:
        """It comes with the chip."""
        return Equipment(0, 0, 0)

    @classmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """A part a rank."""
        return (ranks,)


TOPOLOGY = Numa

"""One switch that never blocks, a link from each host: what the testbeds of most of the papers are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradsync.topologies import Equipment, Topology, refuse_numbers


@dataclass(frozen=True)
class Switch(Topology):
    """`n` hosts; links 0 .. n-1 go up to the switch, n .. 2n-1 down."""

    n: int

    def __post_init__(self) -> None:
        refuse_numbers(self, 1, "n")

    @property
    def shape(self) -> tuple[int, ...]:
        """One level."""
        return (self.n,)

    def link_kind(self) -> np.ndarray:
        """All alike."""
        return np.zeros(2 * self.n, np.int8)

    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """Up and down."""
        return np.column_stack([source, self.n + destination])

    def equipment(self) -> Equipment:
        """A port and an interface for each host."""
        return Equipment(1, self.n, self.n)

    @classmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """As many ports."""
        return (ranks,)


TOPOLOGY = Switch

"""2D torus: a grid of hosts, each with a cable to its four neighbours, no switch (Mikami et al., 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradsync.topologies import NO_LINK, Equipment, Topology, most_even, refuse_numbers


@dataclass(frozen=True)
class Torus2D(Topology):
    """Host r * columns + c; links 4 h .. 4 h + 3 leave host h to the right, the left, below and above."""

    own_links = True
    rows: int
    columns: int

    def __post_init__(self) -> None:
        refuse_numbers(self, 1, "rows", "columns")

    @property
    def shape(self) -> tuple[int, ...]:
        """A row is level 0."""
        return (self.columns, self.rows)

    def link_kind(self) -> np.ndarray:
        """All alike."""
        return np.zeros(4 * self.hosts, np.int8)

    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """Along the row and then the column (rail 1: the other way round), each the shorter way round."""
        host, hops = np.asarray(source), []
        for turn in range(2):
            along_row = (rail + turn) % 2 == 0
            size = np.where(along_row, self.columns, self.rows)
            unit = np.where(along_row, 1, self.columns)
            distance = (destination // unit - host // unit) % size
            forward = 2 * distance <= size
            for _ in range(max(self.columns, self.rows) // 2):
                moves = (destination // unit - host // unit) % size != 0
                if not moves.any():
                    break
                hops.append(np.where(moves, 4 * host + np.where(along_row, 0, 2) + ~forward, NO_LINK))
                place = host // unit % size
                next_host = host + ((place + np.where(forward, 1, -1)) % size - place) * unit
                host = np.where(moves, next_host, host)
        return np.column_stack(hops) if hops else np.full((len(host), 1), NO_LINK)

    def equipment(self) -> Equipment:
        """Four interfaces for each host."""
        return Equipment(0, 0, 4 * self.hosts)

    @classmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """The most even grid."""
        return most_even(ranks)


TOPOLOGY = Torus2D

"""Fat-Tree of n-port switches: n^3/4 hosts, 5 n^2/4 switches in three layers, never blocking (BML paper, Fig. 2).

n pods of n/2 edge and n/2 aggregation switches, (n/2)^2 core switches. The destination decides the route up: the last
digit of its place picks the aggregation switch, the next one the core switch (Al-Fares et al., SIGCOMM 2008).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradsync.errors import InputError
from gradsync.topologies import NO_LINK, Equipment, Topology, refuse_numbers


@dataclass(frozen=True)
class FatTree(Topology):
    """Links come in six blocks of as many as there are hosts, each block one hop of the way up and down."""

    n: int

    def __post_init__(self) -> None:
        refuse_numbers(self, 2, "n")
        if self.n % 2 or self.n > 256:
            raise InputError(f"topology {self.name!r}: N must be even and at most 256")

    @property
    def shape(self) -> tuple[int, ...]:
        """Hosts under an edge switch, edge switches of a pod, pods."""
        return (self.n // 2, self.n // 2, self.n)

    def link_kind(self) -> np.ndarray:
        """All alike."""
        return np.zeros(6 * self.hosts, np.int8)

    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """2 links below one edge switch, 4 within a pod, 6 between pods."""
        half, hosts = self.n // 2, self.hosts
        edge_from, edge_to = source // half, destination // half
        pod_from, pod_to = edge_from // half, edge_to // half
        port = destination % half  # of the edge switch on the way up: which aggregation switch of the pod
        core_port = edge_to % half
        far, farther = edge_from != edge_to, pod_from != pod_to
        up = edge_from * half + port
        core_up = (pod_from * half + port) * half + core_port
        core_down = (pod_to * half + port) * half + core_port
        down = edge_to * half + port
        return np.column_stack(
            [
                source,
                np.where(far, hosts + up, NO_LINK),
                np.where(farther, 2 * hosts + core_up, NO_LINK),
                np.where(farther, 3 * hosts + core_down, NO_LINK),
                np.where(far, 4 * hosts + down, NO_LINK),
                5 * hosts + destination,
            ]
        )

    def equipment(self) -> Equipment:
        """5 N / n switches of n ports, an interface for each host."""
        switches = 5 * self.n**2 // 4
        return Equipment(switches, switches * self.n, self.hosts)

    @classmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """The smallest that holds them."""
        return (next(n for n in range(2, 4 * ranks + 4, 2) if n**3 // 4 >= ranks),)


TOPOLOGY = FatTree

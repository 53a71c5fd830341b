"""Nodes of many GPUs: fast links inside, one slow link from each node to a switch (cloud paper, Section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradsync.topologies import NO_LINK, Equipment, Topology, most_even, refuse_numbers


@dataclass(frozen=True)
class DenseGpu(Topology):
    """`m` nodes of `n` GPUs. The links of GPUs (out, in) come first, then those of nodes (out, in)."""

    kinds = ("inside", "between")
    m: int
    n: int

    def __post_init__(self) -> None:
        refuse_numbers(self, 1, "m", "n")

    @property
    def shape(self) -> tuple[int, ...]:
        """GPUs of a node, nodes."""
        return (self.n, self.m)

    @property
    def ranks_a_node(self) -> int:
        """One rank for each GPU."""
        return self.n

    def link_kind(self) -> np.ndarray:
        """Inside a node, between nodes."""
        return np.repeat(np.array([0, 1], np.int8), [2 * self.hosts, 2 * self.m])

    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """Inside a node GPU to GPU; between nodes the links of both GPUs and both nodes."""
        gpus, node_from, node_to = self.hosts, source // self.n, destination // self.n
        far = node_from != node_to
        return np.column_stack(
            [
                source,
                np.where(far, 2 * gpus + node_from, NO_LINK),
                np.where(far, 2 * gpus + self.m + node_to, NO_LINK),
                gpus + destination,
            ]
        )

    def equipment(self) -> Equipment:
        """One switch between the nodes, an interface for each node; what is inside a node comes with it."""
        return Equipment(1, self.m, self.m)

    @classmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """Nodes of as many GPUs as there are nodes, or more."""
        return most_even(ranks)

    @classmethod
    def numbers_on(cls, ranks: int, ranks_a_node: int) -> tuple[int, ...]:
        """The nodes as they are."""
        return -(-ranks // ranks_a_node), min(ranks, ranks_a_node)


TOPOLOGY = DenseGpu

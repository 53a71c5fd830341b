"""BCube(n, k): every host has a link to a switch of n ports on each of k levels (BML paper, Section 3.1, Fig. 3).

n^k hosts, k n^(k-1) switches. Hosts under one switch of level l differ in digit l of their ids only. Hosts in between
pass on the messages between hosts that differ in several digits, one digit per hop.

Differs from the paper: nothing; the paper that introduced BCube numbers its levels 0 to k, here they are k (BM-E16).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradsync.errors import InputError
from gradsync.topologies import NO_LINK, Equipment, Topology, refuse_numbers


@dataclass(frozen=True)
class BCube(Topology):
    """Link k h + l goes up from host h on level l, link k N + k h + l down to it."""

    own_links = True
    n: int
    k: int

    def __post_init__(self) -> None:
        if self.k < 1 or self.k > 24:
            raise InputError(f"topology {self.name!r}: K = {self.k}: 1 to 24 levels")
        refuse_numbers(self, 2, "n")

    @property
    def shape(self) -> tuple[int, ...]:
        """k levels of n."""
        return (self.n,) * self.k

    def link_kind(self) -> np.ndarray:
        """All alike."""
        return np.zeros(2 * self.k * self.hosts, np.int8)

    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """Corrects the digit of level `rail` first, then those of the levels after it, in turn."""
        n, k = self.n, self.k
        units = n ** np.arange(k, dtype=np.int32)
        hops: list[np.ndarray] = []
        host = np.asarray(source)
        for step in range(k):
            if np.array_equal(host, destination):
                break
            level = (rail + step) % k
            unit = units[level]
            next_host = host + (destination // unit % n - host // unit % n) * unit
            moved = next_host != host
            if moved.any():
                hops.append(np.where(moved, k * host + level, NO_LINK))
                hops.append(np.where(moved, k * self.hosts + k * next_host + level, NO_LINK))
            host = next_host
        return np.column_stack(hops) if hops else np.full((len(host), 1), NO_LINK)

    def equipment(self) -> Equipment:
        """k N / n switches of n ports, k interfaces for each host."""
        switches = self.k * self.n ** (self.k - 1)
        return Equipment(switches, switches * self.n, self.k * self.hosts)

    @classmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """n^k = ranks with the fewest levels, at least 2 of them."""
        for k in range(2, max(2, ranks.bit_length()) + 1):
            n = round(ranks ** (1 / k))
            if n >= 2 and n**k == ranks:
                return n, k
        raise InputError(f"topology 'bcube': {ranks} is no n^k with n, k >= 2 (4, 8, 9, 16, 25, 27, 32, ...)")


TOPOLOGY = BCube

"""What a message costs that is summed by level, as planners take it: what `simulate` has for its three collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradsync.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from gradsync.costs import MessageCost, Network, alpha_beta
from gradsync.plan import DTYPE_BYTES
from gradsync.plan.workload import Workload
from gradsync.sparse import Way


@dataclass(frozen=True)
class ByLevelCost:
    """The cost of a message of so many bytes on a network that knows the axes of its way (`transforms/by_level.py`).

    A message with fewer elements than a node has ranks is an all-reduce; `width`: bytes of an element.
    """

    way: Way
    network: Network
    width: int

    @staticmethod
    def around(cost: MessageCost, way: Way, workload: Workload, network: Network | None) -> ByLevelCost:
        """On that network, or on one that is known by the cost of its all-reduce alone."""
        places = {axis.name: axis.size for axis in way.axes}
        known = alpha_beta.around(cost, way.ranks) if network is None else network
        return ByLevelCost(way, alpha_beta.with_axes(known, way.ranks, places), DTYPE_BYTES[workload.unit])

    def seconds(self, size: Any) -> Any:
        """Of all three; of a message that is too short to be cut, of an all-reduce."""
        cut = sum(cost.seconds(part) for cost, part in self._messages(size))
        return self._where_cut(size, cut, self._whole.seconds(size))

    def startup_seconds(self, size: Any) -> Any:
        """Those of all three."""
        cut = sum(cost.startup_seconds(part) for cost, part in self._messages(size))
        return self._where_cut(size, cut, self._whole.startup_seconds(size))

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """At least what all three transfer, or an all-reduce does."""
        cut = sum(cost.least_transfer_seconds(float(part), low) for cost, part in self._messages(total))
        return min(cut, self._whole.least_transfer_seconds(total, low))

    def describe(self) -> str:
        """What travels over which axis, and what an all-reduce would take."""
        inside, between = self.way.axes[1], self.way.axes[0]
        return f"by level, {between.size} x {inside.size}; in one {self._whole.describe()}"

    @property
    def _whole(self) -> MessageCost:
        return self.network.of(ALL_REDUCE)

    def _where_cut(self, size: Any, cut: Any, whole: Any) -> Any:
        return np.where(np.asarray(size) >= self.way.slices * self.width, cut, whole)[()]

    def _messages(self, size: Any) -> Iterator[tuple[MessageCost, Any]]:
        """The cost and the bytes of each collective."""
        between, inside = (axis.name for axis in self.way.axes)
        yield self.network.of(f"{REDUCE_SCATTER}@{inside}"), size
        yield self.network.of(f"{ALL_REDUCE}@{between}"), size / self.way.slices
        yield self.network.of(f"{ALL_GATHER}@{inside}"), size

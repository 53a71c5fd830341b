"""What a compressed message costs, as planners take it: the seconds that `simulate` has for all of its operations.

Sizes are bytes of the whole gradient of a message. Its selection, both gathers and the sum follow one another on its
lane; no part of them is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradsync.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from gradsync.costs import MessageCost, Network, alpha_beta
from gradsync.engine.clocks import unknown_kernel
from gradsync.kernels import ENCODE, _encode, decode_sum
from gradsync.plan import DTYPE_BYTES, WORLD, Axis
from gradsync.plan.workload import Workload
from gradsync.sparse import INDEX_DTYPE, Compression

LEAST_ROUNDED = 2 / 3  # of the elements that a density asks for are sent, however k is rounded: 1 of 1.5


@dataclass(frozen=True)
class SparseCost:
    """The cost of a message of a workload's gradients under a compression, on a network that knows its axes."""

    compression: Compression
    network: Network
    workload: Workload

    @staticmethod
    def around(cost: MessageCost, compression: Compression, workload: Workload, network: Network | None) -> SparseCost:
        """On that network, or on one that is known by the cost of its all-reduce alone."""
        ranks, places = compression.way.ranks, {axis.name: axis.size for axis in compression.way.axes}
        known = alpha_beta.around(cost, ranks) if network is None else network
        return SparseCost(compression, alpha_beta.with_axes(known, ranks, places), workload)

    def seconds(self, size: Any) -> Any:
        """Transfers and kernels; of a message that is too short to be cut, an all-reduce.

        Raises InputError if the workload doesn't say what a kernel takes.
        """
        k = self._selected(size)
        sparse = sum(cost.seconds(part) for cost, part in self._messages(size, k)) + self._kernel_seconds(size, k)
        return np.where(k > 0, sparse, self._whole.seconds(size))[()]

    def startup_seconds(self, size: Any) -> Any:
        """Those of all transfers."""
        k = self._selected(size)
        sparse = sum(cost.startup_seconds(part) for cost, part in self._messages(size, k))
        return np.where(k > 0, sparse, self._whole.startup_seconds(size))[()]

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """At least what k values are as k is rounded down, or all of it."""
        k = LEAST_ROUNDED * self.compression.density * total / self._width / self.compression.way.slices
        sparse = sum(cost.least_transfer_seconds(float(part), low) for cost, part in self._messages(total, k))
        return min(sparse, self._whole.least_transfer_seconds(total, low))

    def describe(self) -> str:
        """What is sent, and what an all-reduce would take."""
        compression = self.compression
        return f"{compression.compressor}, density {compression.density:g}; all of it {self._whole.describe()}"

    @property
    def _whole(self) -> MessageCost:
        return self.network.of(ALL_REDUCE)

    @property
    def _width(self) -> int:
        return DTYPE_BYTES[self.workload.unit]

    def _selected(self, size: Any) -> Any:
        return self.compression.selected(np.asarray(size) // self._width)

    def _messages(self, size: Any, k: Any) -> Iterator[tuple[MessageCost, Any]]:
        """The cost and the bytes of each transfer."""
        way = self.compression.way
        if way.inside is not None:
            yield self._of(REDUCE_SCATTER, way.inside), size
            yield self._of(ALL_GATHER, way.inside), size
        for width in (self._width, DTYPE_BYTES[INDEX_DTYPE]):
            yield self._of(ALL_GATHER, way.between), k * (way.between.size * width)

    def _of(self, kind: str, axis: Axis) -> MessageCost:
        return self.network.of(kind if axis.name == WORLD else f"{kind}@{axis.name}")

    def _kernel_seconds(self, size: Any, k: Any) -> Any:
        compression, width = self.compression, self._width
        own, index = size / compression.way.slices, DTYPE_BYTES[INDEX_DTYPE]
        gathered = k * compression.way.between.size
        moved = {
            f"{ENCODE}{compression.compressor}": _encode.moved_bytes(own, k * (width + index), compression.feedback),
            "decode_sum": decode_sum.moved_bytes(own, gathered * width, gathered * index),
        }
        return sum(self._per_byte(self.workload.kernels, kernel) * part for kernel, part in moved.items())

    def _per_byte(self, kernels: Mapping[str, float], kernel: str) -> float:
        if kernel not in kernels:
            raise unknown_kernel(kernel, self.workload, "a compressed message needs a kernel")
        return kernels[kernel]

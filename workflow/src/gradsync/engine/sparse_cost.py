"""What a compressed message costs, as planners take it: the seconds that `simulate` has for all of its operations.

Sizes are bytes of the whole gradient of a message. Its selection, both gathers and the sum follow one another on its
lane; no part of them is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradsync.collectives import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from gradsync.costs import MessageCost, Network, alpha_beta
from gradsync.engine.clocks import unknown_kernel
from gradsync.kernels import _code, _encode, decode_sum, kernel_seconds
from gradsync.plan import DTYPE_BYTES, WORLD, Axis
from gradsync.plan.workload import Workload
from gradsync.sparse import Compression, Sent

LEAST_ROUNDED = 2 / 3  # of the elements that a density asks for are sent, however k is rounded: 1 of 1.5
LONG = 1 << 30  # elements
Each = tuple[Sent, Sent]


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
        sent = self._sent(size)
        transfers = sum(cost.seconds(part) for cost, part in self._messages(size, sent))
        seconds = transfers + self._kernel_seconds(size, sent)
        return np.where(sent[0].elements > 0, seconds, self._whole.seconds(size))[()]

    def startup_seconds(self, size: Any) -> Any:
        """Those of all transfers."""
        sent = self._sent(size)
        sparse = sum(cost.startup_seconds(part) for cost, part in self._messages(size, sent))
        return np.where(sent[0].elements > 0, sparse, self._whole.startup_seconds(size))[()]

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """At least what each rank sends however it is rounded, or all of it."""
        messages = self._messages(total, self._least(total))
        sparse = sum(cost.least_transfer_seconds(float(part), low) for cost, part in messages)
        return min(sparse, self._whole.least_transfer_seconds(total, low))

    def describe(self) -> str:
        """What is sent, and what an all-reduce would take."""
        return f"{self.compression.describe()}; all of it {self._whole.describe()}"

    @property
    def _whole(self) -> MessageCost:
        return self.network.of(ALL_REDUCE)

    @property
    def _width(self) -> int:
        return DTYPE_BYTES[self.workload.unit]

    def _sent(self, size: Any) -> Each:
        """What each rank sends of a message of so many bytes."""
        return self.compression.sent(np.asarray(size) // self._width)

    def _least(self, total: float) -> Each:
        """The least that each rank sends of so many bytes, in however many messages they are."""
        elements = total / self._width / self.compression.way.slices
        first, second = self.compression.sent(self.compression.way.slices * LONG)
        if self.compression.codes:  # however a message is rounded up, no share of it is less than that of a long one
            first, second = (each._replace(elements=(each.elements - 1) / LONG * elements) for each in (first, second))
            return first, second
        k = LEAST_ROUNDED * self.compression.density * elements
        return first._replace(elements=k), second._replace(elements=k)

    def _messages(self, size: Any, sent: Each) -> Iterator[tuple[MessageCost, Any]]:
        """The cost and the bytes of each transfer."""
        way = self.compression.way
        if way.inside is not None:
            yield self._of(REDUCE_SCATTER, way.inside), size
            yield self._of(ALL_GATHER, way.inside), size
        for part in self._bytes(sent):
            yield self._of(ALL_GATHER, way.between), part * way.between.size

    def _bytes(self, sent: Each) -> list[Any]:
        """Bytes of each range that a rank sends."""
        return [each.elements * (DTYPE_BYTES[each.dtype] if each.dtype else self._width) for each in sent]

    def _of(self, kind: str, axis: Axis) -> MessageCost:
        return self.network.of(kind if axis.name == WORLD else f"{kind}@{axis.name}")

    def _kernel_seconds(self, size: Any, sent: Each) -> Any:
        compression = self.compression
        own, ranks, (first, second) = size / compression.way.slices, compression.way.between.size, self._bytes(sent)
        encoded = _encode.moved_bytes(own, first + second, compression.feedback)
        selected: Any = 0.0
        if compression.codes:
            decoded = _code.decoded_bytes(own, (first + second) * ranks, ranks)
        else:
            decoded = decode_sum.moved_bytes(own, first * ranks, second * ranks)
            selected = first + second
        encode, decode = compression.kernels
        for kernel in (encode, decode):
            if kernel not in self.workload.kernels:
                raise unknown_kernel(kernel, self.workload, "a compressed message needs a kernel")
        known = self.workload.kernels
        return kernel_seconds(encode, known, encoded, selected) + kernel_seconds(decode, known, decoded)

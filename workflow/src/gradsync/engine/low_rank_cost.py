"""What a low-rank message costs, as planners take it: both of its all-reduces, and the kernels around them.

Sizes are bytes of the whole gradient of a message. Planners know no more of it than these, so every byte counts as the
mean byte of the model does; `simulate` has each message as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradsync.costs import MessageCost
from gradsync.engine.clocks import unknown_kernel
from gradsync.plan.workload import Workload
from gradsync.transforms.low_rank import LowRank

KERNELS = ("powersgd_left", "powersgd_right", "powersgd_decode")


@dataclass(frozen=True)
class LowRankCost:
    """The cost of a message of a workload's gradients, given that of an all-reduce."""

    alone: MessageCost
    low_rank: LowRank
    workload: Workload

    def seconds(self, size: Any) -> Any:
        """Transfers and kernels; raises InputError if the workload doesn't say what a kernel takes."""
        kernels = sum(self._per_byte(kernel) * moved for kernel, moved in zip(KERNELS, self._moved(), strict=True))
        return sum(self.alone.seconds(share * size) for share in self._shares()) + kernels * size

    def startup_seconds(self, size: Any) -> Any:
        """Those of both transfers."""
        return sum(self.alone.startup_seconds(share * size) for share in self._shares())

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """Factors of all matrices, and the tensors that travel whole; `total`: bytes of the whole model."""
        return self.alone.least_transfer_seconds(sum(self._shares()) * total, low)

    def describe(self) -> str:
        """What is sent, and what an all-reduce would take."""
        return f"{self.low_rank.describe()}; all of it {self.alone.describe()}"

    def _shares(self) -> tuple[float, float]:
        """Of the bytes of the model, those of P and whole tensors, and those of Q."""
        elements = [layer.parameters for layer in self.workload.layers]
        pairs = list(zip(self.low_rank.matrices, elements, strict=True))
        left = sum(each.left if each else whole for each, whole in pairs)
        return left / sum(elements), sum(each.right for each, _ in pairs if each) / sum(elements)

    def _moved(self) -> tuple[float, float, float]:
        """Bytes that each kernel moves for a byte of the model, as the kernels themselves count them."""
        found = [each for each in self.low_rank.matrices if each]
        elements = sum(layer.parameters for layer in self.workload.layers)
        values = sum(each.rows * each.columns for each in found)
        left, right = sum(each.left for each in found), sum(each.right for each in found)
        passes = sum(each.left * (2 + 2 * each.rank) for each in found)
        kept = 3 if self.low_rank.feedback else 1
        moved = kept * values + left + right, values + right + passes, kept * values + left + 2 * right
        return moved[0] / elements, moved[1] / elements, moved[2] / elements

    def _per_byte(self, kernel: str) -> float:
        if kernel not in self.workload.kernels:
            raise unknown_kernel(kernel, self.workload, "a low-rank message needs a kernel")
        return self.workload.kernels[kernel]

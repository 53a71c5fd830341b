"""Which messages are measured: from the smallest to the largest, or those that a workload can have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradsync.configuration.options import option
from gradsync.errors import InputError

if TYPE_CHECKING:
    from gradsync.plan.workload import Workload

OF_ONE_LAYER = 16  # the part of a single layer that the smallest message is


@dataclass(frozen=True, kw_only=True)
class Messages:
    """Options of what measures messages of many sizes."""

    smallest: int = option(1024, "smallest message", metavar="BYTES")
    largest: int = option(16 * 1024 * 1024, "largest message", metavar="BYTES")
    workload: str | None = option(
        None,
        "messages from its smallest gradient to all of them at once, whatever --smallest and --largest are",
        metavar="W.json",
    )

    def sizes(self) -> tuple[int, int]:
        """Bytes of the smallest and of the largest message; raises InputError if these are none."""
        from gradsync.plan.workload import Workload

        if self.workload:
            return span(Workload.load(self.workload))
        if self.smallest >= self.largest:
            raise InputError(f"--smallest {self.smallest}: must be less than --largest {self.largest}")
        return self.smallest, self.largest


def span(workload: Workload) -> tuple[int, int]:
    """Bytes of the smallest gradient and of all at once; of a single one, of a part of it: a line needs two sizes."""
    smallest = min(layer.bytes for layer in workload.layers)
    if smallest == workload.bytes:
        smallest = max(4, smallest // OF_ONE_LAYER // 4 * 4)
    return smallest, workload.bytes

"""The cost of messages beside computation: what planners are given if the slow-down of both was measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradsync.costs import MessageCost
from gradsync.costs.contention import capacity, host_seconds
from gradsync.costs.interference import Interference


@dataclass(frozen=True)
class Beside:
    """The cost `alone`, with the `interference` of its messages and computation; seconds are those alone."""

    alone: MessageCost
    interference: Interference

    def seconds(self, size: Any) -> Any:
        """T(m) while nothing is computed."""
        return self.alone.seconds(size)

    def startup_seconds(self, size: Any) -> Any:
        """Alone, too."""
        return self.alone.startup_seconds(size)

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """Interference makes nothing faster."""
        return self.alone.least_transfer_seconds(total, low)

    def describe(self) -> str:
        """The cost alone; what slows it has points of its own."""
        sizes = len(self.interference.points)
        return f"{self.alone.describe()}; slowed beside computation, as measured at {sizes} size(s)"

    @property
    def halves(self) -> dict[str, MessageCost]:
        """What of its halves is known, alone."""
        return dict(getattr(self.alone, "halves", {}))

    @property
    def host_seconds(self) -> float:
        """The host starts messages as it does."""
        return host_seconds(self.alone)

    @property
    def capacity(self) -> float:
        """As many messages at once as alone."""
        return capacity(self.alone)


def interference(cost: MessageCost) -> Interference | None:
    """What a planner counts with beside the seconds of messages; None if nothing is known of it, or it is nothing."""
    known = getattr(cost, "interference", None)
    if known is None or (
        known.handover_seconds == 0.0 and all(p.computation == p.communication == 1 for p in known.points)
    ):
        return None
    return known

"""Messages at the same time on one link: how many of them it carries before they slow one another down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gradsync.costs import MessageCost


@dataclass(frozen=True)
class Contended:
    """The cost of a message alone, on a link that carries the transfer of `capacity` messages at full speed at a time.

    1: a message alone fills the link. 1/0.6: a single connection gets 0.6 of it.
    """

    alone: MessageCost
    capacity: float

    def seconds(self, size: Any) -> Any:
        """T_1(m)."""
        return self.alone.seconds(size)

    def startup_seconds(self, size: Any) -> Any:
        """The part of T_1(m) that overlaps with other messages."""
        return self.alone.startup_seconds(size)

    def describe(self) -> str:
        """The cost alone, and the capacity."""
        return f"{self.alone.describe()}; the link carries {self.capacity:.3g} such messages at full speed"


def capacity(cost: MessageCost) -> float:
    """Messages that the link of `cost` carries at full speed at a time; 1 where nothing is known of several."""
    return float(getattr(cost, "capacity", 1.0))

"""Contention of messages on one link: how many of them it carries before they slow one another down."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import Any

from gradsync.costs import MessageCost
from gradsync.errors import InputError


@dataclass(frozen=True)
class Contended:
    """The cost of a message alone, on a link that carries the transfer of `capacity` messages at full speed at a time.

    1: a message alone fills the link. 1/0.6: a single connection gets 0.6 of it. `host_seconds` of its start-up are the
    cores' of a rank, which start one message after the other; the rest of it is latency, which overlaps.

    `capacity_high`: the upper end of the interval of a capacity that was fitted, infinite if it has none; None for a
    capacity that was not fitted.

    Raises InputError for a capacity below 1 (several messages at once can't be slower than in turn by the link's doing)
    and for negative `host_seconds`.
    """

    alone: MessageCost
    capacity: float
    host_seconds: float = 0.0
    capacity_high: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.capacity < inf:
            raise InputError(
                f"capacity {self.capacity:g}: must be finite and at least 1: a message alone gets no more than the link"
            )
        if self.capacity_high is not None and not self.capacity_high >= self.capacity:
            raise InputError(
                f"capacity {self.capacity:g}: the upper end of its interval, {self.capacity_high:g}, lies below it"
            )
        if not 0 <= self.host_seconds < inf:
            raise InputError(f"host seconds {self.host_seconds:g}: must be finite and not negative")

    def seconds(self, size: Any) -> Any:
        """T_1(m)."""
        return self.alone.seconds(size)

    def startup_seconds(self, size: Any) -> Any:
        """The part of T_1(m) that does not occupy the link; of it, `host_seconds` don't overlap with other messages."""
        return self.alone.startup_seconds(size)

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """Alone, one message after the other; several at once take 1/capacity of it together."""
        return self.alone.least_transfer_seconds(total, low)

    @property
    def halves(self) -> dict[str, Contended]:
        """What is known of a reduce-scatter and an all-gather, on the same link; the host starts either sooner."""
        known = getattr(self.alone, "halves", {})
        half = replace(self, host_seconds=0.5 * self.host_seconds)
        return {kind: replace(half, alone=cost) for kind, cost in known.items()}

    def describe(self) -> str:
        """The cost alone, and the capacity."""
        host = f", {self.host_seconds:.3g} s of each start on the host" if self.host_seconds else ""
        return f"{self.alone.describe()}; the link carries {self.capacity:.3g} such messages at full speed{host}"


def capacity(cost: MessageCost) -> float:
    """Messages that the link of `cost` carries at full speed at a time; 1 if nothing is known of contention."""
    return float(getattr(cost, "capacity", 1.0))


def largest_capacity(cost: MessageCost) -> float:
    """The most that the capacity may be, by its interval; the capacity itself if it was not fitted."""
    high = getattr(cost, "capacity_high", None)
    return capacity(cost) if high is None else float(high)


def host_seconds(cost: MessageCost) -> float:
    """Seconds of a rank's cores that each message takes to start; 0 if they are not known apart from its latency."""
    return float(getattr(cost, "host_seconds", 0.0))

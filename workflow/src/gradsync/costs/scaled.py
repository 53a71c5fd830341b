"""A cost of which start-up and transfer take so many times as long: what another network would make of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gradsync.costs import MessageCost, Network
from gradsync.costs.contention import capacity, host_seconds


@dataclass(frozen=True)
class Scaled:
    """`startup` times the start-up of a message of `whole`, and `transfer` times the rest of it."""

    whole: MessageCost
    startup: float = 1.0
    transfer: float = 1.0

    def seconds(self, size: Any) -> Any:
        """T(m)."""
        start = self.whole.startup_seconds(size)
        return self.startup * start + self.transfer * (self.whole.seconds(size) - start)

    def startup_seconds(self, size: Any) -> Any:
        """The part of T(m) that does not occupy the link."""
        return self.startup * self.whole.startup_seconds(size)

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """What occupies the link."""
        return self.transfer * self.whole.least_transfer_seconds(total, low)

    def describe(self) -> str:
        """The whole, and by how much it is changed."""
        return f"{self.whole.describe()}, start-up x {self.startup:.3g}, transfer x {self.transfer:.3g}"

    @property
    def halves(self) -> dict[str, Scaled]:
        """What of its halves is known, as much slower."""
        known = getattr(self.whole, "halves", {})
        return {kind: replace(self, whole=cost) for kind, cost in known.items()}

    @property
    def host_seconds(self) -> float:
        """The host starts messages as it does."""
        return host_seconds(self.whole)

    @property
    def capacity(self) -> float:
        """As many messages at once as of the whole."""
        return capacity(self.whole)


def scaled(network: Network, startup: float = 1.0, transfer: float = 1.0) -> Network:
    """A network all of whose messages take so many times as long."""
    return Network({kind: Scaled(cost, startup, transfer) for kind, cost in network.costs.items()})

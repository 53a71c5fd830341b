"""A reduce-scatter and an all-gather: as measured, or half of an all-reduce, as a ring's halves are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gradsync.costs import MessageCost
from gradsync.costs.contention import capacity, host_seconds

HALVES: Final = ("reduce_scatter", "all_gather")


@dataclass(frozen=True)
class Half:
    """Half the seconds of `whole`, whatever the size: nobody has measured the half itself."""

    whole: MessageCost

    def seconds(self, size: Any) -> Any:
        """T(m) / 2."""
        return 0.5 * self.whole.seconds(size)

    def startup_seconds(self, size: Any) -> Any:
        """Half of the whole's."""
        return 0.5 * self.whole.startup_seconds(size)

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """Half of the whole's."""
        return 0.5 * self.whole.least_transfer_seconds(total, low)

    def describe(self) -> str:
        """Of what it is the half."""
        return f"half of {self.whole.describe()}"

    @property
    def host_seconds(self) -> float:
        """Half of the whole's."""
        return 0.5 * host_seconds(self.whole)

    @property
    def capacity(self) -> float:
        """As many messages at once as of the whole."""
        return capacity(self.whole)


def halves(whole: MessageCost) -> dict[str, MessageCost]:
    """The costs of both kinds: those that `whole` knows (`halves`, by kind), half of it for others."""
    known = getattr(whole, "halves", {})
    return {kind: known.get(kind) or Half(whole) for kind in HALVES}

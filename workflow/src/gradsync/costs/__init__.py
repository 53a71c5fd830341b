"""Cost models: seconds of a message of so many bytes, split into start-up latency and transfer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from gradsync.errors import InputError


class MessageCost(Protocol):
    """Seconds of one message; arrays of bytes give arrays of seconds."""

    def seconds(self, size: Any) -> Any:
        """T(m)."""

    def startup_seconds(self, size: Any) -> Any:
        """The part of T(m) that does not occupy the link and overlaps with other messages."""

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """The link is occupied for no less, in however many messages so many bytes are sent.

        `low`: by the lower ends of the intervals of what was fitted, if the cost was.
        """

    def describe(self) -> str:
        """One line: the numbers behind it and where they came from."""


@dataclass(frozen=True)
class Linear:
    """T(m) = a + b m: `a` in seconds, `b` in seconds per byte (MG-WFBP Eq. 9).

    `b_low`: the lower end of the interval of a `b` that was fitted; None if `b` was not fitted.
    """

    a: float
    b: float
    source: str = ""
    b_low: float | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.a < np.inf and 0 <= self.b < np.inf):
            raise InputError(f"cost a={self.a}, b={self.b}: both must be finite and not negative")
        if self.b_low is not None and not 0 <= self.b_low <= self.b:
            raise InputError(f"cost b={self.b}: the lower end of its interval, {self.b_low}, must be between 0 and it")

    def seconds(self, size: Any) -> Any:
        """T(m)."""
        return self.a + self.b * size

    def startup_seconds(self, size: Any) -> Any:
        """a, whatever the size."""
        return self.a + 0.0 * size

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """b m, however it is cut."""
        return (self.b_low if low and self.b_low is not None else self.b) * total

    def describe(self) -> str:
        """a and b."""
        return f"T(m) = {self.a:.6g} s + {self.b:.6g} s/B m" + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True)
class Network:
    """What a message costs, by kind of operation; the key `send` is a point-to-point message."""

    costs: Mapping[str, MessageCost] = field(default_factory=dict)

    def of(self, kind: str) -> MessageCost:
        """The cost of a kind of operation; raises InputError if this network has none."""
        try:
            return self.costs[kind]
        except KeyError:
            known = ", ".join(sorted(self.costs)) or "none"
            raise InputError(f"no cost for {kind!r} messages (this network has: {known}): give one") from None

"""What iterations of a loop of one's own take, as the hooks of the plan see them that runs meanwhile.

Forward is all that comes before backward of the pass whose gradients are sent: micro-batches in no_sync(), too. What
comes between the last sum and the next forward counts as the update: the optimizer, the loop's own work, loading.
"""

from __future__ import annotations

import statistics as numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

from gradsync.attachment.auto import layer_of
from gradsync.plan.workload import Workload
from gradsync.runtime.devices import Device


@dataclass
class Marks:
    """Of an iteration: its beginning, the end of its last forward, each gradient, the last sum."""

    opened: Any
    forward_ended: Any = None
    ready: dict[str, Any] = field(default_factory=dict)
    backward_ended: Any = None
    next_opened: Any = None


class Seconds(NamedTuple):
    """Medians of one rank: until backward begins, until each gradient from the beginning on, and after the last sum."""

    forward: float
    ready: dict[str, float]
    update: float


class Profile:
    """Marks of iterations on one rank."""

    def __init__(self, device: Device):
        self.device = device
        self.turns: list[Marks] = []

    def opened(self) -> None:
        """An iteration begins, and so the one before has ended."""
        mark = self.device.mark()
        if self.turns:
            self.turns[-1].next_opened = mark
        self.turns.append(Marks(mark))

    def forward_ended(self) -> None:
        """A forward has; one after this iteration's backward is an evaluation."""
        if self.turns and not self.turns[-1].ready:
            self.turns[-1].forward_ended = self.device.mark()

    def ready(self, name: str) -> None:
        """A gradient that will be sent is there."""
        if self.turns:
            self.turns[-1].ready[name] = self.device.mark()

    def backward_ended(self) -> None:
        """All sums are there."""
        if self.turns:
            self.turns[-1].backward_ended = self.device.mark()

    def seconds(self) -> Seconds:
        """Of the whole iterations so far."""
        self.device.synchronize()
        between = self.device.seconds
        whole = [turn for turn in self.turns if turn.next_opened is not None and turn.ready]
        ready: dict[str, list[float]] = {}
        for turn in whole:
            for name, mark in turn.ready.items():
                ready.setdefault(name, []).append(between(turn.opened, mark))
        # of a model that is not called itself, no end of forward is seen
        begun = [turn.forward_ended or next(iter(turn.ready.values())) for turn in whole]
        return Seconds(
            numbers.median(between(turn.opened, mark) for turn, mark in zip(whole, begun, strict=True)),
            {name: numbers.median(times) for name, times in ready.items()},
            numbers.median(between(turn.backward_ended, turn.next_opened) for turn in whole),
        )


def workload(name: str, parameters: dict[str, nn.Parameter], ranks: Sequence[Seconds], statistics: int) -> Workload:
    """The workload of synchronous ranks: a message leaves when the slowest of them has its gradients.

    Gradients that no rank had come last, with no time of their own.
    """
    seconds: dict[str, float] = {}
    for rank in ranks:
        for key, ready in rank.ready.items():
            seconds[key] = max(ready, seconds.get(key, 0.0))
    forward = max(rank.forward for rank in ranks)
    layers, before = [], forward
    for key in sorted(seconds, key=lambda key: seconds[key]):
        layers.append(layer_of(key, parameters[key], max(0.0, seconds[key] - before)))
        before = max(before, seconds[key])
    layers += [layer_of(key, parameters[key], 0.0) for key in parameters if key not in seconds]
    return Workload(
        name=name,
        forward_seconds=forward,
        update_seconds=max(rank.update for rank in ranks),
        layers=tuple(layers),
        statistics=statistics,
        provenance={"measured": "medians of the iterations of a loop of one's own, of the slowest rank each"},
    )

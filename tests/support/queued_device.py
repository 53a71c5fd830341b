"""A processor that is spoken to as a GPU is: queues, marks and waits are kept account of, work is done at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gradsync.runtime.devices import Device


@dataclass(frozen=True)
class Mark:
    """`order` is what is known to be done once it is reached: the number of the last such mark of each queue."""

    at: float
    order: dict[str, int]


@dataclass
class QueuedProcessor(Device):
    """Everything that a queue does after a wait comes after what the mark stands for; nothing else is in order."""

    queued = True
    kind = "cpu"
    current: str = "first"
    known: dict[str, Counter[str]] = field(default_factory=lambda: {"first": Counter()})

    def queue(self) -> str:
        name = f"queue {len(self.known)}"
        self.known[name] = Counter()
        return name

    @contextmanager
    def on(self, queue: str | None) -> Iterator[None]:
        before, self.current = self.current, queue or self.current
        yield
        self.current = before

    def mark(self) -> Mark:
        known = self.known[self.current]
        known[self.current] += 1
        return Mark(time.perf_counter(), dict(known))

    def wait(self, mark: Mark) -> None:
        self.known[self.current] |= Counter(mark.order)

    def synchronize(self) -> None:
        done: Counter[str] = Counter()
        for known in self.known.values():
            done |= known
        self.known = {name: Counter(done) for name in self.known}

    def seconds(self, start: Mark, end: Mark) -> float:
        return end.at - start.at

    def instants(self, marks: Any) -> list[float]:
        return [mark.at - marks[0].at for mark in marks]


def before(first: Mark, second: Mark) -> bool:
    """True if whoever waited for `second` has `first` behind it."""
    return all(second.order.get(queue, 0) >= number for queue, number in first.order.items())

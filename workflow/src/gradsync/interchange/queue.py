"""The clock of computation: when what the host records at some moment is reached.

A GPU reaches it as it would reach a CUDA event: once it has done the kernels that were launched before. Kernels of
collectives run beside it and are left out. A host that computes itself is there at once, but its clock stands still
while it hands a message over (a call of c10d), which is no computation.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple


class Kernel(NamedTuple):
    """Seconds on one clock: when the host launched it, when the device began and ended it."""

    launched: float
    start: float
    end: float


class Queue:
    """Kernels of one device by the moment of their launch."""

    def __init__(self, kernels: Iterable[Kernel]):
        self.kernels = sorted(kernels)
        self.launches = [kernel.launched for kernel in self.kernels]
        self.ends = list(accumulate((kernel.end for kernel in self.kernels), max))
        self.runs = list(_joined((kernel.start, kernel.end) for kernel in self.kernels))
        self.run_starts = [start for start, _ in self.runs]
        self.run_before = list(accumulate((end - start for start, end in self.runs), initial=0.0))

    def reached(self, moment: float) -> float:
        """When all kernels that were launched before that moment have ended; no earlier than that moment."""
        before = bisect_left(self.launches, moment)
        return max(moment, self.ends[before - 1]) if before else moment

    def begun(self, start: float, end: float) -> float:
        """When the first kernel that was launched between two moments began; without one, when `start` is reached."""
        first = bisect_left(self.launches, start)
        if first < len(self.kernels) and self.launches[first] <= end:
            return max(self.reached(start), self.kernels[first].start)
        return self.reached(start)

    def busy(self, start: float, end: float) -> float:
        """Seconds between two moments in which a kernel ran."""
        return self._run_until(end) - self._run_until(start)

    def _run_until(self, moment: float) -> float:
        place = bisect_right(self.run_starts, moment)
        return self.run_before[place] - (max(0.0, self.runs[place - 1][1] - moment) if place else 0.0)


def _joined(spans: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Spans that overlap made one, in order."""
    begun, ended = None, 0.0
    for start, end in sorted(spans):
        if begun is None or start > ended:
            if begun is not None:
                yield begun, ended
            begun, ended = start, end
        ended = max(ended, end)
    if begun is not None:
        yield begun, ended


class Host:
    """A host that computes itself; `calls` are what stops its clock, (start, end) each, in order and disjoint."""

    def __init__(self, calls: Iterable[tuple[float, float]] = ()):
        self.calls = list(calls)
        self.starts = [start for start, _ in self.calls]
        self.before = list(accumulate((end - start for start, end in self.calls), initial=0.0))

    def reached(self, moment: float) -> float:
        """The moment, less what calls took until then."""
        place = bisect_right(self.starts, moment)
        inside = max(0.0, self.calls[place - 1][1] - moment) if place else 0.0
        return moment - self.before[place] + inside

    def begun(self, start: float, end: float) -> float:
        """Work that the host gives begins at once."""
        return self.reached(start)

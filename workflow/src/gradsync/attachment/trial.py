"""Two plans in turn (A B B A) while a model trains, and which of them is faster.

A pair of neighbouring blocks gives a ratio; the median of the ratios decides, so that one evaluation or checkpoint
between two iterations does not.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradsync.runtime.devices import Device
from gradsync.statistics.intervals import median_interval

BLOCKS = (0, 1, 1, 0)
Times = list[list[float]]


class Verdict(NamedTuple):
    """Median seconds of an iteration with the old and the new plan, and their ratio (new over old) with its interval.

    The ends are None for fewer than six pairs.
    """

    old_seconds: float
    new_seconds: float
    ratio: float
    low: float | None
    high: float | None


class Trial:
    """Which plan an iteration has, and when each ends. The first iteration of a block is not timed."""

    def __init__(self, device: Device, steps: int, rounds: int):
        self.device, self.steps = device, steps
        self.blocks = BLOCKS * rounds
        self.marks: list[Any] = []

    def border(self) -> int | None:
        """The next iteration has the old plan (0) or the new one (1); None: the trial is over."""
        block = len(self.marks) // (1 + self.steps)
        self.marks.append(self.device.mark())
        return self.blocks[block] if block < len(self.blocks) else None

    def seconds(self) -> Times:
        """Of the timed iterations of each block."""
        self.device.synchronize()
        each = [self.device.seconds(*pair) for pair in zip(self.marks, self.marks[1:], strict=False)]
        length = 1 + self.steps
        return [each[block * length + 1 : (block + 1) * length] for block in range(len(self.blocks))]


def verdict(ranks: Sequence[Times]) -> Verdict:
    """From the times of all ranks, whose means are taken iteration by iteration."""
    blocks = [statistics.median(times) for times in np.mean(np.array(ranks), axis=0).tolist()]
    of_plan = [[time for time, plan in zip(blocks, BLOCKS * len(blocks), strict=False) if plan == k] for k in (0, 1)]
    ratios = [new / old for old, new in zip(*of_plan, strict=True)]
    low, ratio, high = median_interval(ratios)
    return Verdict(statistics.median(of_plan[0]), statistics.median(of_plan[1]), ratio, low, high)

"""Messages timed by the paper's own model of contention: gamma for the overlap of two, Eq. 11 to 13 as corrected.

A message starts once its gradients are there and what it waits for has ended. One that contends with another delays
both by (gamma - 1) b m, m being the bytes that overlap (ASC-E10 to E12). Unlike the simulator it times pairs only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gradsync.costs import Linear, pairwise_contention
from gradsync.errors import InputError
from gradsync.plan.workload import Workload
from gradsync.schedules import Message


class Timed(NamedTuple):
    """Start and end of each message in seconds, forward starting at 0, in the order of the messages."""

    starts: tuple[float, ...]
    ends: tuple[float, ...]

    @property
    def iteration_seconds(self) -> float:
        """The end of the last message (max over layers: ASC-E18)."""
        return max(self.ends)


def timed(workload: Workload, messages: Sequence[Message], line: Linear, gamma: float) -> Timed:
    """Times every message by the model; raises InputError for what it does not know: three at once, or split ones."""
    if any(message.part != (0, 1) for message in messages):
        raise InputError("the pairwise model knows no split messages: simulate them")
    ready, sizes = workload.ready_seconds(), workload.sizes()
    bytes_of = [float(sizes[message.first : message.last + 1].sum()) for message in messages]
    starts, ends = [0.0] * len(messages), [0.0] * len(messages)
    lanes: dict[str, deque[int]] = {}
    for number, message in enumerate(messages):
        lanes.setdefault(message.lane, deque()).append(number)
    free = dict.fromkeys(lanes, -1)  # the message before on the lane
    started: set[int] = set()
    active: list[int] = []
    for _ in messages:
        possible = []
        for lane, waiting in lanes.items():
            if waiting and started.issuperset(messages[waiting[0]].after):
                before = [*messages[waiting[0]].after, *([free[lane]] if free[lane] >= 0 else [])]
                begin = max([_there(ready, messages[waiting[0]]), *(ends[j] for j in before)])
                possible.append((begin, waiting[0]))
        # the earliest: nothing that starts later delays what it waits for
        start, i = min(possible)
        free[messages[i].lane] = lanes[messages[i].lane].popleft()
        started.add(i)
        active = [j for j in active if ends[j] > start]
        if len(active) > 1:
            raise InputError("the pairwise model knows two messages at once, not three: simulate them")
        starts[i], ends[i] = start, start + line.a + line.b * bytes_of[i]
        for j in active:
            met = pairwise_contention.penalty_bytes(bytes_of[j], starts[j], start, bytes_of[i], line.a, line.b)
            late = pairwise_contention.penalty(met, line.b, gamma)
            ends[i] += late
            ends[j] += late
        active.append(i)
    return Timed(tuple(starts), tuple(ends))


def _there(ready: np.ndarray, message: Message) -> float:
    """When the gradients of a message may leave."""
    return float(ready[-1 if message.after_backward else message.last])

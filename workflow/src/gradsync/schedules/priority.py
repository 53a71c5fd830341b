"""Pieces of tensors, sent by priority: of those that are ready, the one that the next forward needs first.

Source: ByteScheduler (Peng et al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration", SOSP
2019); P3 (Jayarajan et al., "Priority-based Parameter Propagation for Distributed DNN Training", MLSys 2019).

Each piece is an all-reduce, followed by the update of its own parameters (`updates/by_message.py`); forward of a layer
waits for its own pieces alone. All of them have ended when forward has, so every backward finds the lane idle, and the
period is backward plus the forward that waits for pieces.

Differs from the paper: the order is static, made from the times of the workload, where ByteScheduler has a queue at run
time and a credit of bytes in flight, so that ranks need not agree on an order at run time. One piece is in flight at a
time, and none is interrupted. The size of a partition, which ByteScheduler tunes by Bayesian optimisation, is the one
of the shortest period of a sweep: it is halved from the largest tensor on, until the messages alone take longer than
the shortest period so far. Updates take nothing: where they do, simulations take longer than planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import ceil
from typing import NamedTuple

import numpy as np

from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.plan import DTYPE_BYTES, piece
from gradsync.plan.workload import Workload
from gradsync.schedules import Message

UPDATE = "by_message"
MOST = 4096  # messages of a plan, where start-ups are so short that no sweep would end
BETTER = 1.0 - 1e-12  # less than this times the best is better: rounding is not


def schedule(workload: Workload, cost: MessageCost, *, partition_bytes: int = 0) -> tuple[Message, ...]:
    """The messages of a partition size; 0: that of the shortest period. Raises InputError for a negative one."""
    if partition_bytes < 0:
        raise InputError(f"priority: partition_bytes={partition_bytes}: at least 1, or 0 for the best of a sweep")
    tensors = Tensors(workload, cost)
    return (tensors.sent(partition_bytes) if partition_bytes else swept(tensors)).messages


class Sent(NamedTuple):
    """Messages in the order sent, the seconds from one forward to the next, and those in which the lane is busy."""

    messages: tuple[Message, ...]
    period: float
    busy: float


class Tensors:
    """A workload and a cost, with the order in which priority sends pieces of a size."""

    def __init__(self, workload: Workload, cost: MessageCost):
        self.cost = cost
        # from the beginning of backward
        self.ready: list[float] = np.cumsum([layer.backward_seconds for layer in workload.layers]).tolist()
        self.forward_order = workload.forward_order()
        self.forward: list[float] = workload.forward_by_layer().tolist()
        self.place = {layer: place for place, layer in enumerate(self.forward_order)}
        self.width = DTYPE_BYTES[workload.unit]
        self.elements = [layer.bytes // self.width for layer in workload.layers]
        self.known: dict[int, float] = {}

    def seconds(self, elements: int) -> float:
        """Of a message of so many elements."""
        if elements not in self.known:
            self.known[elements] = float(self.cost.seconds(float(elements * self.width)))
        return self.known[elements]

    def pieces(self, partition: int) -> list[int]:
        """How many pieces of at most so many bytes each tensor has; none is smaller than an element."""
        most = max(1, partition // self.width)
        return [ceil(elements / most) for elements in self.elements]

    def sent(self, partition: int) -> Sent:
        """The pieces as priority sends them."""
        pieces, messages = self.pieces(partition), list[Message]()
        waiting: list[tuple[int, int, int]] = []  # (place in forward, layer, index of the piece) that are ready
        lane, busy, arrived = 0.0, 0.0, 0
        end = [0.0] * len(pieces)
        while waiting or arrived < len(pieces):
            if not waiting:
                lane = max(lane, self.ready[arrived])
            while arrived < len(pieces) and self.ready[arrived] <= lane:
                heappush(waiting, (self.place[arrived], arrived, 0))
                arrived += 1
            place, layer, index = heappop(waiting)
            start, stop = piece(0, self.elements[layer], index, pieces[layer])
            seconds = self.seconds(stop - start)
            lane, busy = lane + seconds, busy + seconds
            messages.append(Message(layer, layer, part=(index, pieces[layer])))
            end[layer] = lane
            if index + 1 < pieces[layer]:
                heappush(waiting, (place, layer, index + 1))
        return Sent(tuple(messages), self.period(end), busy)

    def period(self, end: list[float]) -> float:
        """Seconds from one forward to the next, if the last message of each layer ends then."""
        now = self.ready[-1]
        for layer in self.forward_order:
            now = max(now, end[layer]) + self.forward[layer]
        return now

    def partitions(self) -> Iterator[int]:
        """Bytes, from the largest tensor on, halved."""
        size = max(self.elements) * self.width
        while True:
            yield size
            if size <= self.width or sum(self.pieces(size // 2)) > MOST:
                return
            size //= 2


def swept(tensors: Tensors) -> Sent:
    """The messages of the shortest period; of equal ones those of the largest partition."""
    first, *others = tensors.partitions()
    best = tensors.sent(first)
    for partition in others:
        sent = tensors.sent(partition)
        if sent.busy > best.period:  # smaller pieces take even longer
            break
        if sent.period < best.period * BETTER:
            best = sent
    return best

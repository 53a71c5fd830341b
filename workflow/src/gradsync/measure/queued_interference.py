"""Interference of computation and messages on a device that queues its work (a GPU).

A message of NCCL takes some of the multiprocessors and of the memory bandwidth from computation. As in an execution,
one thread puts messages on a queue of their own, evenly over the iterations on the other queue; marks say when each
message was on its way. Nothing slows down work on a queue that waits for its host: such waits stay part of both.

With B seconds of messages on their way in W seconds of computation that takes A seconds alone, computation got on by
A - (W - B) in those B: while messages are on their way it takes B / (A - W + B) times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradsync.runtime.devices import Device
from gradsync.runtime.group import settle

FEWEST_MESSAGES, MOST_MESSAGES = 4, 400
LARGEST_FACTOR = 100.0  # if messages stop computation altogether; keeps a factor finite


class Queues:
    """Times two kinds of work, each on its queue; seconds are means. Collective over all ranks, which do the same."""

    def __init__(self, device: Device):
        self.device, self.lane = device, device.queue()

    def computing(self, iterate: Callable[[], object], count: int) -> float:
        """Seconds of an iteration alone."""
        return self._alone(None, iterate, count)

    def sending(self, send: Callable[[], object], count: int) -> float:
        """Seconds of a message alone."""
        return self._alone(self.lane, send, count)

    def _alone(self, queue: Any, action: Callable[[], object], count: int) -> float:
        device, count = self.device, max(1, count)
        device.synchronize()
        with device.on(queue):
            start = device.mark()
            for _ in range(count):
                action()
            end = device.mark()
        settle(device)
        return device.seconds(start, end) / count

    def together(
        self,
        iterate: Callable[[], object],
        send: Callable[[], object],
        message: float,
        iteration: float,
        segment: float,
    ) -> tuple[float, float, float]:
        """Seconds (of an iteration, of a message, of each iteration with a message on its way) under interference.

        `message` and `iteration` are the seconds of each alone; computation takes `segment` seconds at least.
        """
        device = self.device
        iterations = max(2, math.ceil(max(segment, FEWEST_MESSAGES * message) / iteration))
        messages = int(min(MOST_MESSAGES, max(FEWEST_MESSAGES, iterations * iteration / message)))
        marks: list[tuple[Any, Any]] = []
        device.synchronize()
        start = device.mark()
        for number in range(iterations):
            begun = device.mark()
            with device.on(self.lane):
                device.wait(begun)
                for _ in range(messages * (number + 1) // iterations - messages * number // iterations):
                    first = device.mark()
                    send()
                    marks.append((first, device.mark()))
            iterate()
        end = device.mark()
        settle(device)
        sent = [(device.seconds(start, first), device.seconds(start, last)) for first, last in marks]
        window, mean, busy = within(sent, device.seconds(start, end))
        return window / iterations, mean, busy / iterations

    def factors(self, both: Sequence[float], alone: Sequence[float]) -> tuple[float, float]:
        """Factors (of computation, of communication) from the times of `together` and (iteration, message) alone."""
        window, message, busy = both
        computed = max(alone[0] - window + busy, busy / LARGEST_FACTOR)
        return (busy / computed if busy else 1.0), message / alone[1]

    def in_turn(self, iterate: Callable[[], object], send: Callable[[], object], turns: int) -> float:
        """Seconds of an iteration, of a message that waits for it, and until the next iteration may begin."""
        device = self.device
        device.synchronize()
        start = device.mark()
        for _ in range(turns):
            iterate()
            ready = device.mark()
            with device.on(self.lane):
                device.wait(ready)
                send()
                through = device.mark()
            device.wait(through)
        end = device.mark()
        settle(device)
        return device.seconds(start, end) / turns


def within(sent: Sequence[tuple[float, float]], window: float) -> tuple[float, float, float]:
    """(`window`, mean seconds of the messages that ended in it, seconds of it with a message on its way).

    `sent`: (start, end) of messages one after the other, in seconds from the start of the window. If none ended in it,
    all count.
    """
    busy = sum(min(end, window) - start for start, end in sent if start < window)
    whole = [end - start for start, end in sent if end <= window] or [end - start for start, end in sent]
    return window, sum(whole) / len(whole), busy

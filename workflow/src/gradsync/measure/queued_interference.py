"""Computation and messages beside one another on a device that queues its work (a GPU).

What a message of NCCL takes from computation is some of the multiprocessors, and memory bandwidth. Messages are put on
a queue of their own, evenly over the iterations on the other, by one thread, as in an execution; marks tell when each
was on its way. On a queue, work that waits for its host is not slowed by anything: that stays part of both sides.

With B seconds of messages on their way in W seconds of computation that takes A seconds alone, computation got on by
A - (W - B) in those B: beside messages it takes B / (A - W + B) times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from gradsync.runtime.devices import Device
from gradsync.runtime.group import settle

FEWEST_MESSAGES, MOST_MESSAGES = 4, 400
MOST_SLOWDOWN = 100.0  # where computation stands still beside messages; keeps a factor finite


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
        """(seconds an iteration, of a message, and an iteration with a message on its way), beside one another.

        `message` and `iteration` are the seconds of each alone, `segment` those that computation shall take at least.
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

    def slowed(self, beside: Sequence[float], alone: Sequence[float]) -> tuple[float, float]:
        """Factors (of computation, of communication) from what `together` says and (iteration, message) alone."""
        window, message, busy = beside
        computed = max(alone[0] - window + busy, busy / MOST_SLOWDOWN)
        return (busy / computed if busy else 1.0), message / alone[1]

    def in_turn(self, iterate: Callable[[], object], send: Callable[[], object], turns: int) -> float:
        """Seconds of an iteration, a message that waits for it, and going on once it is through."""
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

    `sent`: (start, end) of messages one after the other, in seconds from the start of the window. Where none ended in
    it, all count.
    """
    busy = sum(min(end, window) - start for start, end in sent if start < window)
    whole = [end - start for start, end in sent if end <= window] or [end - start for start, end in sent]
    return window, sum(whole) / len(whole), busy

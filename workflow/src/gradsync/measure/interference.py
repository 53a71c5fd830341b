"""Measure interference: how computation and messages slow one another down on the cores that they share.

On each rank a thread all-reduces messages of one size without a pause, as a lane of an execution does, while the
calling thread runs forward and backward. Each is compared with itself alone, in turns: alone, both, both, alone. If one
follows the other, both take longer than their sum: that is what handing over to the other thread costs, there and back.

On a GPU, messages share its multiprocessors and its memory with computation; `queued_interference.py` measures that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.distributed as dist

from gradsync.costs.interference import Interference, InterferencePoint, interval
from gradsync.measure.passes import Pass
from gradsync.measure.queued_interference import Queues
from gradsync.plan.workload import Workload
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.group import own_group
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.statistics.intervals import median_interval, repeats_needed

SIZES = (5, 3, 2)  # from the smallest gradient to all of them; between them the factors are interpolated
ROUNDS = (2, repeats_needed())  # fewest and most; of fewer there is no interval
BUDGET_SECONDS = 15.0
SEGMENT_SECONDS = 0.2
SEGMENT_ITERATIONS = 2  # or one that takes long
LONG_SECONDS = 0.5
SEGMENTS = 3  # per size and round: both, each alone, one after the other
MOST_MESSAGES = 400  # per segment


def sizes(workload: Workload, count: int = SIZES[0]) -> list[int]:
    """Bytes of the messages to measure with: whole float32 elements, even on a logarithmic scale."""
    smallest, total = min(layer.bytes for layer in workload.layers), workload.bytes
    return sorted({max(4, int(size) // 4 * 4) for size in np.geomspace(smallest, total, count)})


def affordable(segment: float) -> tuple[int, int]:
    """(sizes, rounds) that fit into the budget if a segment takes so many seconds: fewer of large models."""
    steps = int(BUDGET_SECONDS / (SEGMENTS * segment))
    count = next((count for count in SIZES if steps >= 3 * count), SIZES[-1])
    return count, int(np.clip(steps // count, *ROUNDS))


def measure(
    workload: Workload,
    name: str,
    batch: int,
    *,
    size: int | None = None,
    seed: int = 0,
    device: Device = PROCESSOR,
) -> Interference:
    """The factors of the running ranks, the same on all of them; collective over at least two.

    A factor is a ratio of mean seconds of an iteration or of a message on the slowest rank: under interference over
    alone, in one round. The median of the rounds counts.
    """
    others = OtherWork()
    step = Pass(name, size, batch, seed, device)
    group = own_group(device)
    timer: Threads | Queues = Queues(device) if device.queued else Threads()
    for _ in range(2):  # the first ones pay for memory
        step.compute()
    iteration = of_the_slowest(timer.computing(step.compute, 3))
    segment = max(SEGMENT_SECONDS, min(SEGMENT_ITERATIONS * iteration, max(iteration, LONG_SECONDS)))
    how_many, rounds = affordable(segment)
    buffers = {bytes_: torch.zeros(bytes_ // 4, device=device.torch_device) for bytes_ in sizes(workload, how_many)}

    def send(bytes_: int) -> Callable[[], object]:
        return lambda: dist.all_reduce(buffers[bytes_], group=group)

    for bytes_ in buffers:  # the first ones pay for connections
        send(bytes_)()
    message_seconds = {bytes_: of_the_slowest(timer.sending(send(bytes_), 5)) for bytes_ in buffers}
    computation: dict[int, list[float]] = {bytes_: [] for bytes_ in buffers}
    communication: dict[int, list[float]] = {bytes_: [] for bytes_ in buffers}
    handover: list[float] = []
    for turn in range(rounds):
        for bytes_ in buffers:
            seconds: dict[bool, list[float]] = {}
            for both in (False, True) if turn % 2 == 0 else (True, False):
                dist.barrier()
                if both:
                    times: tuple[float, ...] = timer.together(
                        step.compute, send(bytes_), message_seconds[bytes_], iteration, segment
                    )
                else:
                    message = timer.sending(send(bytes_), messages(segment, message_seconds[bytes_]) // 2)
                    dist.barrier()
                    times = timer.computing(step.compute, round(segment / 2 / iteration)), message
                seconds[both] = [of_the_slowest(value) for value in times]
            dist.barrier()
            turns = max(1, round(segment / (iteration + seconds[False][1])))
            serial = of_the_slowest(timer.in_turn(step.compute, send(bytes_), turns))
            handover.append((serial - sum(seconds[False])) / 2)
            factors = timer.factors(seconds[True], seconds[False])
            computation[bytes_].append(factors[0])
            communication[bytes_].append(factors[1])
    dist.destroy_process_group(group)
    points = [
        InterferencePoint.of(bytes_, median_interval(computation[bytes_]), median_interval(communication[bytes_]))
        for bytes_ in buffers
    ]
    handovers = median_interval(handover)
    return Interference(
        ranks=dist.get_world_size(),
        points=tuple(points),
        handover_seconds=max(0.0, handovers[1]),
        handover_interval=interval(handovers),
        provenance={
            "measured": f"median of {rounds} rounds, segments of {segment:.2f} s",
            "model": name,
            "batch": step.samples.batch,
            "size": step.samples.size,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            **machines(),
            **others.share(),
            **device.provenance(),
        },
    )


def messages(segment: float, message: float) -> int:
    """How many messages of so many seconds fill a segment."""
    return max(4, min(MOST_MESSAGES, int(segment / message)))


class Threads:
    """Computation in the calling thread, messages in another; seconds are means. As `queued_interference.Queues`."""

    def computing(self, iterate: Callable[[], object], count: int) -> float:
        """Seconds of an iteration alone."""
        return _mean_seconds(iterate, count)

    def sending(self, send: Callable[[], object], count: int) -> float:
        """Seconds of a message alone."""
        return _mean_seconds(send, count)

    def together(
        self,
        iterate: Callable[[], object],
        send: Callable[[], object],
        message: float,
        iteration: float,
        segment: float,
    ) -> tuple[float, float]:
        """Seconds (of an iteration, of a message) under interference."""
        return _together(iterate, send, messages(segment, message))

    def factors(self, both: Sequence[float], alone: Sequence[float]) -> tuple[float, float]:
        """Factors (of computation, of communication)."""
        return both[0] / alone[0], both[1] / alone[1]

    def in_turn(self, iterate: Callable[[], object], send: Callable[[], object], turns: int) -> float:
        """Seconds of an iteration, handing over to a message, and handing back."""
        return _in_turn(iterate, send, turns)


def _mean_seconds(action: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(max(1, count)):
        action()
    return (time.perf_counter() - start) / max(1, count)


def _together(iterate: Callable[[], object], send: Callable[[], object], messages: int) -> tuple[float, float]:
    """Seconds (per iteration, per message) while another thread sends `messages` of them."""
    spent = []
    lane = threading.Thread(target=lambda: spent.append(_mean_seconds(send, messages)))
    start, iterations, inside = time.perf_counter(), 0, 0.0
    lane.start()
    while lane.is_alive() or not iterations:
        iterate()
        if lane.is_alive() or not iterations:  # an iteration that outlasts the messages is slowed in part only
            iterations, inside = iterations + 1, time.perf_counter() - start
    lane.join()
    return inside / iterations, spent[0]


def _in_turn(iterate: Callable[[], object], send: Callable[[], object], turns: int) -> float:
    """Seconds of an iteration, handing over to another thread that sends a message, and handing back."""
    ready, through = threading.Semaphore(0), threading.Semaphore(0)

    def messages() -> None:
        for _ in range(turns):
            ready.acquire()
            send()
            through.release()

    def turn() -> None:
        iterate()
        ready.release()
        through.acquire()

    lane = threading.Thread(target=messages)
    lane.start()
    seconds = _mean_seconds(turn, turns)
    lane.join()
    return seconds


def of_the_slowest(seconds: float) -> float:
    """The seconds of the slowest rank."""
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return float(slowest)

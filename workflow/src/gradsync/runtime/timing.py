"""Seconds of an all-reduce between the running ranks, message size by message size.

As in an execution, messages of one lane follow one another without a barrier between them. On a processor a thread of
its own sends them; on a GPU they are put on a queue of its own, and marks on that queue time each of them. The time
that a GPU waits for its host is part of a message too: of a small one, which takes less time than its launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync.collectives import ALL_REDUCE, ALL_TO_ALL, POSTCONDITION
from gradsync.plan import WORLD, Axis, Buffer, Collective, Kind, Mesh, Plan, Ref, Role
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.group import Groups, control_group, own_group, settle
from gradsync.schedules import DEFAULT_LANE

WARM_UP = 3
FIRST = 1  # message of a collective that is made of transfers: its time decides how many are timed
PASSES = 3
MESSAGE = "message"


def all_reduce_seconds(
    sizes: list[int],
    repeats: int,
    seconds_a_size: float,
    *,
    device: Device = PROCESSOR,
    teams: Sequence[Sequence[int]] | None = None,
) -> dict[int, list[float]]:
    """bytes -> seconds of each repeat of a float32 sum, the mean of the ranks'; collective over all ranks.

    Of each size, as many are timed as fit into `seconds_a_size`, at least a fifteenth of `repeats` (two, if one takes
    more than a second) and at most all of them.
    Sizes take turns, so that a slow moment of the machine does not fall on one. Each wait is part of some message, so
    the times of all of them add up to what they took together.

    `teams` are disjoint groups of ranks that each all-reduce among themselves, all at the same time (None: all ranks
    together); a rank of no team gets nothing.
    """
    if teams is None:
        return _among(sizes, repeats, seconds_a_size, device, own_group(device), None)
    groups = [(team, own_group(device, team), control_group(team)) for team in teams]
    for team, group, control in groups:
        if dist.get_rank() in team:
            seconds = _among(sizes, repeats, seconds_a_size, device, group, control)
            dist.destroy_process_group(control)
            return seconds
    return {}


def _among(
    sizes: list[int],
    repeats: int,
    seconds_a_size: float,
    device: Device,
    group: dist.ProcessGroup,
    control: dist.ProcessGroup | None,
) -> dict[int, list[float]]:
    """Time the ranks of `group`, which is closed; `control`: the group of the same ranks on their hosts (None: all)."""
    queue = device.queue()
    buffers = [torch.zeros(max(1, size // 4), device=device.torch_device) for size in sizes]
    stamps: list[list[tuple[Any, Any]]] = [[] for _ in buffers]

    def send(number: int) -> None:
        start = device.mark()
        dist.all_reduce(buffers[number], group=group)
        stamps[number].append((start, device.mark()))

    def row(counts: list[int]) -> None:
        with device.on(queue):
            for turn in range(max(counts)):
                for number, count in enumerate(counts):
                    if turn < count:
                        send(number)

    def in_a_thread(counts: list[int]) -> list[list[float]]:
        """Seconds of each message, by size."""
        for pairs in stamps:
            pairs.clear()
        device.synchronize()
        with ThreadPoolExecutor(1) as lane:
            lane.submit(row, counts).result()  # raises what failed there
        settle(device, control)
        return [[device.seconds(start, end) for start, end in pairs] for pairs in stamps]

    if device.queued:
        # NCCL connects for an algorithm, which depends on the size, when it is first used
        in_a_thread([1] * len(sizes))
    alone = torch.tensor([np.mean(times) for times in in_a_thread([WARM_UP] * len(sizes))])
    dist.all_reduce(alone, op=dist.ReduceOp.MAX, group=control)
    counts = [_count(seconds, repeats, seconds_a_size) for seconds in alone.tolist()]
    every = [torch.tensor(times, dtype=torch.float64) for times in in_a_thread(counts)]
    for times in every:
        dist.all_reduce(times, group=control)
    dist.destroy_process_group(group)
    return {
        4 * len(buffer): (times / dist.get_world_size(control)).tolist()
        for buffer, times in zip(buffers, every, strict=True)
    }


def collective_seconds(
    algorithm: str,
    shape: tuple[int, ...],
    sizes: list[int],
    repeats: int,
    seconds_a_size: float,
    *,
    kind: Kind = ALL_REDUCE,
    over: str = WORLD,
    axes: tuple[Axis, ...] = (),
    device: Device = PROCESSOR,
) -> dict[int, list[float]]:
    """The same for a collective as it is executed in training: in a lane of a plan of one message.

    Of that kind, between the groups of an axis `over` all at the same time (`world`: all ranks), if the ranks lie on
    `axes`; an all-to-all has messages of equal pieces. A time is from the end of a message to the end of the next.
    Collective over all ranks. On a GPU only the backend's own can be timed, else InputError.
    """
    groups, rank = Groups(device), dist.get_rank()
    ranks = dist.get_world_size()
    places = Mesh(ranks, axes).size(over)
    cut = places if kind == ALL_TO_ALL else 1
    elements = [-(-max(1, size // 4) // cut) * cut for size in sizes]
    lanes = [prepare(_alone(algorithm, shape, count, ranks, kind, over, axes), rank, groups) for count in elements]

    def in_turn(counts: list[int]) -> list[list[float]]:
        """Seconds of each message, by size."""
        rows = []
        for lane, count in zip(lanes, counts, strict=True):
            lane.spans.clear()
            if count:
                lane.run(1 + count)
            ends = [span.end for span in lane.spans if span.operation == MESSAGE]
            rows.append(np.diff(ends).tolist())
        return rows

    alone = torch.tensor([np.mean(times) for times in in_turn([FIRST] * len(sizes))])
    dist.all_reduce(alone, op=dist.ReduceOp.MAX)
    counts = [_count(seconds, repeats, seconds_a_size) for seconds in alone.tolist()]
    # in several passes, so that a slow moment of the machine does not fall on one size
    parts = [[len(part) for part in np.array_split(np.arange(count), PASSES)] for count in counts]
    times: list[list[float]] = [[] for _ in sizes]
    for number in range(PASSES):
        for size_times, pass_times in zip(times, in_turn([part[number] for part in parts]), strict=True):
            size_times += pass_times
    groups.close()
    totals = [torch.tensor(size_times, dtype=torch.float64) for size_times in times]
    for total in totals:
        dist.all_reduce(total)
    return {4 * count: (size_times / ranks).tolist() for count, size_times in zip(elements, totals, strict=True)}


def _count(seconds: float, repeats: int, seconds_a_size: float) -> int:
    """The number of times that a message that takes so long is timed; one of more than a second varies little."""
    few = max(1, repeats // 15) if seconds < 1 else 2
    return int(np.clip(seconds_a_size / seconds, few, max(few, repeats)))


def _alone(
    algorithm: str, shape: tuple[int, ...], elements: int, ranks: int, kind: Kind, over: str, axes: tuple[Axis, ...]
) -> Plan:
    """A plan of one message of so many float32 elements per turn."""
    all_of_it = (Ref("gradient", 0, elements),)
    message = Collective(
        name=MESSAGE,
        lane=DEFAULT_LANE,
        kind=kind,
        postcondition=POSTCONDITION[kind],
        algorithm=algorithm,
        shape=shape,
        over=over,
        reads=all_of_it,
        writes=all_of_it,
    )
    return Plan(
        name=f"{algorithm} {kind} of {4 * elements} B",
        ranks=ranks,
        tensors=(),
        buffers=(Buffer("gradient", elements),),
        roles=(Role("worker", tuple(range(ranks)), (message,)),),
        axes=axes,
    )

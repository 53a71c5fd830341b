"""Measure backward seconds per gradient, in the order in which autograd really produces gradients, and forward seconds
per parameter, in the order in which forward really needs parameters.

With several ranks all compute at the same time, as in training. Before each iteration they sum their gradients in one
message, which is not timed: it brings them together and leaves the caches as training does. A synchronous iteration
waits for its slowest rank, so the totals are those of the rank that took longest, the medians of iterations. The norm
of the gradients, which only clipping needs, and kernels that only some plans use are timed by themselves afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.distributed as dist

from gradsync.measure.kernels import seconds_per_byte
from gradsync.measure.passes import Marks, Pass, Times
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.group import own_group, settle
from gradsync.runtime.hosts import machines
from gradsync.runtime.other_work import OtherWork
from gradsync.runtime.sharded_blocks import block_of

WARM_UP = 3


def measure(
    name: str, batch: int, iterations: int, *, size: int | None = None, seed: int = 0, device: Device = PROCESSOR
) -> Workload:
    """The workload of the running ranks, the same on all of them; collective. `size`: pixels of a side (None: its own).

    Gradients that autograd never produces come last, with no backward time of their own. Forward seconds of a parameter
    are those from when forward first needs it to when it first needs the next one; together they are forward's. On a
    GPU times are those of its queue, in which an iteration follows the one before without waiting for the host.
    """
    others = OtherWork()
    ranks = dist.get_world_size()
    step = Pass(name, size, batch, seed, device)
    step.watch()
    measured = timed(step, iterations)
    norm = norm_seconds(step, iterations)
    update, forward, backward = (float(value) for value in np.median(slowest(measured), axis=0))
    backward_seconds = _shared([times.backward for times in measured], backward)
    forward_seconds = _shared([times.ahead for times in measured], forward)
    place = {key: index for index, key in enumerate(forward_seconds)}
    blocks = block_of(step.model)
    order = [*backward_seconds, *(key for key in step.parameters if key not in backward_seconds)]
    return Workload(
        name=models.title(name),
        forward_seconds=forward,
        update_seconds=update,
        norm_seconds=norm,
        kernels=seconds_per_byte(len(step.flat), device),
        layers=tuple(
            Layer(
                name=key,
                bytes=step.parameters[key].numel() * 4,
                elements=step.parameters[key].numel(),
                shape=tuple(step.parameters[key].shape),
                backward_seconds=backward_seconds.get(key, 0.0),
                forward_seconds=forward_seconds[key],
                forward_index=place[key],
                block=blocks.get(key),
            )
            for key in order
        ),
        statistics=sum(buffer.numel() for buffer in step.model.buffers() if buffer.is_floating_point()),
        provenance={
            "measured": f"median of {iterations} iterations, batch {step.samples.batch}, "
            f"{torch.get_num_threads()} thread(s); totals of the slowest of {ranks} rank(s) that compute at the same "
            "time, shares of layers from rank 0",
            "batch": step.samples.batch,
            "size": step.samples.size,
            "ranks": ranks,
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            **machines(),
            **others.share(),
            "device": device.kind,
            **device.provenance(),
        },
    )


def timed(step: Pass, iterations: int) -> list[Times]:
    """The times of this rank's iterations, after those that warm up; collective."""
    marks = _iterate(step, iterations + WARM_UP, dist.get_world_size())
    return [step.times(each) for each in marks[WARM_UP:]]


def slowest(measured: Sequence[Times]) -> np.ndarray:
    """Seconds of update, forward and backward of the rank that took longest, by iteration; collective.

    # (iterations, 3)
    """
    totals = [(times.update, times.forward, sum(times.backward.values())) for times in measured]
    return _slowest(torch.tensor(totals, dtype=torch.float64))


def _shared(iterations: list[dict[str, float]], total: float) -> dict[str, float]:
    """The median of iterations, whose keys are the same in the same order, scaled to a total."""
    seconds = np.median([list(times.values()) for times in iterations], axis=0)
    seconds *= total / (seconds.sum() or 1.0)  # a clock may have seen nothing
    return dict(zip(iterations[0], seconds.tolist(), strict=True))


def norm_seconds(step: Pass, iterations: int) -> float:
    """What the norm of all gradients takes on the slowest rank while all compute it, the median; collective."""
    marks = []
    for _ in range(iterations + 1):
        dist.barrier()
        marks.append(step.norm())
    settle(step.device)
    mine = torch.tensor([step.device.seconds(*pair) for pair in marks[1:]], dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    return float(np.median(mine.numpy()))


def _iterate(step: Pass, iterations: int, ranks: int) -> list[Marks]:
    """The marks of all iterations, which are over."""
    group = own_group(step.device) if ranks > 1 else None
    marks = []
    for iteration in range(iterations):
        if iteration == WARM_UP:
            settle(step.device)
        if ranks > 1:
            dist.all_reduce(step.flat, group=group)
        marks.append(step(scale=1 / ranks))
    settle(step.device)
    if group is not None:
        dist.destroy_process_group(group)
    return marks


def _slowest(mine: torch.Tensor) -> np.ndarray:
    """Of each iteration (update, forward, backward) of the rank whose sum is the largest.  # (iterations, 3)"""
    of_ranks = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, mine)
    totals = torch.stack(of_ranks).numpy()  # (ranks, iterations, 3)
    return totals[totals.sum(axis=2).argmax(axis=0), np.arange(len(mine))]

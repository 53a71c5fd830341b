"""Measure what the ratios of LARS or LAMB take, all of them on each rank, and dealt to ranks and gathered, in turn.

Source: the cloud paper, Sections 4.2 and 5.4. What is executed is the plan of a step without its message and its
update, once as it is (serial) and once with PTO; parameters, gradients and moments are made up. In each round both have
a turn, every second round in reverse order. Ranks begin a turn together, and its first iteration is not timed. A time
is that of an iteration: from the end of all ratios to the end of the next ones, mean over ranks.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil
import torch
import torch.distributed as dist

from gradsync import optimizers, updates
from gradsync.costs.ratio_times import RatioPoint, RatioTimes
from gradsync.engine.oracle import refuse_bytes
from gradsync.errors import InputError
from gradsync.kernels import KERNELS
from gradsync.plan import DTYPE_BYTES, Collective, Local, Plan
from gradsync.plan.workload import Workload
from gradsync.runtime.devices import PROCESSOR, Device
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Executor, Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.hosts import gathered_by_node, machines
from gradsync.runtime.other_work import OtherWork
from gradsync.schedules import Message
from gradsync.statistics.intervals import median_interval, shown
from gradsync.transforms.step import Step


def measure(
    workload: Workload, names: Sequence[str], *, rounds: int, iterations: int, device: Device = PROCESSOR
) -> RatioTimes:
    """Times of these optimizers' ratios of the tensors of a workload; collective over the running ranks.

    Raises InputError for an optimizer without ratios, and on all ranks if one has no memory for what is read.
    """
    others, groups, ranks = OtherWork(), Groups(device), dist.get_world_size()
    points = [_point(workload, name, rounds, iterations, groups) for name in names]
    groups.close()
    return RatioTimes(
        device="cuda" if device.queued else "cpu",
        workload=workload.name,
        tensors=len(workload.layers),
        elements=workload.bytes // DTYPE_BYTES[workload.unit],
        ranks=ranks,
        points=tuple(points),
        provenance={
            "measured": f"{rounds} rounds, in each the mean of {iterations} iteration(s); both in turn",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            **machines(),
            **others.share(),
            **device.provenance(),
        },
    )


def _point(workload: Workload, name: str, rounds: int, iterations: int, groups: Groups) -> RatioPoint:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    plans = [alone(workload, name, ranks, dealt=dealt) for dealt in (False, True)]
    _refuse_memory(plans[0], groups.device)
    memory: Pool = {}
    serial, dealt = (prepare(plan, rank, groups, pool=memory) for plan in plans)
    for values in memory.values():
        values.uniform_(0.1, 1.0)  # second moments are never negative
    times = torch.zeros(rounds, 2, dtype=torch.float64)
    for number in range(rounds):
        for place, executor in [(0, serial), (1, dealt)][:: 1 if number % 2 == 0 else -1]:
            times[number, place] = _seconds(executor, iterations)
        if rank == 0:
            print(f"measure ratios: {name}, round {number + 1}/{rounds}", file=sys.stderr, flush=True)
    dist.all_reduce(times)
    of_serial, of_dealt = (times / ranks).T.tolist()
    return RatioPoint(optimizer=name, serial_seconds=tuple(of_serial), pto_seconds=tuple(of_dealt))


def alone(workload: Workload, name: str, ranks: int, *, dealt: bool) -> Plan:
    """The plan whose turns are the ratios of that optimizer, dealt to ranks and gathered or not, and nothing else.

    Raises InputError for an optimizer without ratios, and for tensors of an unknown type.
    """
    optimizer, message = optimizers.get(name), (Message(0, len(workload.layers) - 1),)
    if optimizer.ratios is None:
        raise InputError(f"optimizer {name!r} has no ratios of norms: take lars or lamb")
    whole = updates.plan("ssgd", name, workload, message, ranks, optimizer=optimizer, step=Step(pto=dealt))
    refuse_bytes(whole)
    (role,) = whole.roles
    (ratios,) = (op for op in role.flat if isinstance(op, Local) and KERNELS[op.kernel].dealt)
    (written,) = ratios.writes
    gathers = [op for op in role.flat if isinstance(op, Collective) and op.writes[0].buffer == written.buffer]
    first = dataclasses.replace(ratios, after=(), after_previous=tuple(op.name for op in gathers))
    used = {written.buffer, *(ref.buffer for ref in ratios.reads)}
    return dataclasses.replace(
        whole,
        tensors=(),
        # of no role that is kept from turn to turn, so that two plans share their memory
        buffers=tuple(dataclasses.replace(each, role="scratch") for each in whole.buffers if each.name in used),
        roles=(dataclasses.replace(role, body=(first, *gathers)),),
    )


def _seconds(executor: Executor, iterations: int) -> float:
    last = executor.body[-1].name
    executor.spans.clear()
    dist.barrier()
    executor.run(1 + iterations)
    ends = [span.end for span in executor.spans if span.operation == last]
    return (ends[-1] - ends[0]) / iterations


def _refuse_memory(plan: Plan, device: Device) -> None:
    """Raises InputError on all ranks if a machine, or a GPU, has no room for what its ranks read; collective."""
    own = device.free_bytes()
    free = float(psutil.virtual_memory().available) if own is None else own
    held = float(plan.most_bytes())
    for node, of_ranks in gathered_by_node((held, free)).items():
        needed = sum(each[0] for each in of_ranks) if own is None else held
        if needed > (least := min(each[1] for each in of_ranks)):
            where = node if own is None else f"a GPU of {node}"
            raise InputError(
                f"measure ratios: parameters, gradients and moments take {needed / 1e9:.3g} GB on {where}, and "
                f"{least / 1e9:.3g} GB are free: take fewer ranks there, or a smaller model"
            )


def rows(times: RatioTimes) -> list[dict[str, Any]]:
    """For each optimizer the medians of both times and of their ratio, round by round, with intervals."""
    answer = []
    for point in times.points:
        row: dict[str, Any] = {"optimizer": point.optimizer}
        of_key = {"serial_seconds": point.serial_seconds, "pto_seconds": point.pto_seconds}
        for key, values in {**of_key, "pto_over_serial": np.divide(point.pto_seconds, point.serial_seconds)}.items():
            row |= dict(zip((f"{key}_low", key, f"{key}_high"), median_interval(values), strict=True))
        answer.append(row)
    return answer


def columns(times: RatioTimes) -> str:
    """The rows as text for people, times in milliseconds."""
    lines = [("optimizer", "every rank, all [ms]", "dealt, gathered [ms]", "dealt / all")]
    for row in rows(times):
        of_key = [
            shown((row[key], row[f"{key}_low"], row[f"{key}_high"]), form, scale)
            for key, form, scale in (
                ("serial_seconds", ".3f", 1e3),
                ("pto_seconds", ".3f", 1e3),
                ("pto_over_serial", ".3f", 1.0),
            )
        ]
        lines.append((row["optimizer"], *of_key))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)

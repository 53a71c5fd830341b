"""Measure what a replayed workload takes beyond its waits: norm and update, which all ranks compute at the same time.

Gradients are made while a wait lasts and cost nothing; no wait hides norm and update.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist

from gradsync.measure.kernels import seconds_per_byte
from gradsync.measure.layers import norm_seconds
from gradsync.measure.passes import Pass
from gradsync.plan.workload import Workload
from gradsync.runtime import replay
from gradsync.runtime.hosts import machines

WARM_UP = 1


def measure(model: str, iterations: int) -> Workload:
    """The workload of `replay:FILE` with its update and norm as measured, seconds of the slowest rank; collective."""
    workload = replay.workload_of(model)
    step = Pass(model, None, 1)
    assert isinstance(step.model, replay.Replayed)
    step.model.pace = 0.0
    updates = []
    for _ in range(iterations + WARM_UP):
        dist.barrier()
        updates.append(step.times(step()).update)
    mine = torch.tensor(updates[WARM_UP:], dtype=torch.float64)
    dist.all_reduce(mine, op=dist.ReduceOp.MAX)
    update = float(np.median(mine.numpy()))
    measured = f"seconds of an update on {dist.get_world_size()} ranks at the same time: {update:.4g}"
    provenance = {**workload.provenance, "update": measured, **machines()}
    return workload.model_copy(
        update={
            "update_seconds": workload.update_seconds + update,
            "norm_seconds": workload.norm_seconds + norm_seconds(step, iterations),
            "kernels": seconds_per_byte(len(step.flat)),
            "provenance": provenance,
        }
    )

"""The operation by which an update applies gradients, and the plan of a step in which all ranks do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gradsync import optimizers
from gradsync.optimizers import Kept, Optimizer
from gradsync.plan import COMPUTE, Buffer, Local, Plan, Ref, Role, Tensor
from gradsync.plan.workload import Workload

SGD = optimizers.get("sgd")


def applied(
    optimizer: Optimizer,
    name: str,
    gradient: Ref,
    ranks: int,
    *,
    requires: Literal["sum", "shard"],
    after: tuple[str, ...],
    lane: str = COMPUTE,
) -> Local:
    """The optimizer's step, by the mean over so many ranks of what is summed in `gradient`."""
    kept = ("parameter", *(each.name for each in optimizer.kept))
    return Local(
        name=name,
        lane=lane,
        after=after,
        kernel=optimizer.name,
        arguments={**optimizer.arguments, "scale": 1.0 / ranks},
        reads=(gradient,),
        writes=tuple(gradient._replace(buffer=buffer) for buffer in kept),
        requires=requires,
    )


def of_workers(
    name: str,
    workload: Workload,
    tensors: tuple[Tensor, ...],
    ranks: int,
    optimizer: Optimizer,
    body: Sequence[Any],
) -> Plan:
    """The plan of one role for all ranks, with gradients, parameters and what the optimizer keeps."""
    keyed = (Kept("gradient", "gradient"), Kept("parameter", "parameter"), *optimizer.kept)
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tensors,
        buffers=tuple(Buffer(each.name, tensors[-1].stop, workload.unit, role=each.role) for each in keyed),
        roles=(Role("worker", tuple(range(ranks)), tuple(body)),),
    )

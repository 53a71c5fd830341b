"""The operations by which an update applies gradients, and the plan of a step in which all ranks do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gradsync import optimizers
from gradsync.optimizers import Kept, Optimizer
from gradsync.plan import COMPUTE, WORLD, Buffer, Local, Plan, Ref, Role, Tensor
from gradsync.plan.workload import Workload
from gradsync.updates._tensors import buffer_of_ratios, by_tensor

SGD = optimizers.get("sgd")


def applied(
    optimizer: Optimizer,
    name: str,
    gradient: Ref,
    ranks: int,
    tensors: tuple[Tensor, ...],
    *,
    requires: Literal["sum", "shard"] | None,
    after: tuple[str, ...],
    lane: str = COMPUTE,
) -> tuple[Local, ...]:
    """The optimizer's step `name`, by the mean over so many ranks of what is summed in `gradient`; its ratios first.

    Raises InputError if it needs norms of whole tensors, and `gradient` is not one of whole `tensors`.
    """
    scale = 1.0 / ranks
    how: dict[str, Any] = {"lane": lane, "after": after, "requires": requires}
    if optimizer.ratios is not None:
        return by_tensor(optimizer, optimizer.ratios, name, gradient, tensors, scale, **how)
    kept = ("parameter", *(each.name for each in optimizer.kept))
    step = Local(
        name=name,
        kernel=optimizer.name,
        arguments={**optimizer.arguments, "scale": scale},
        reads=(gradient,),
        writes=tuple(gradient._replace(buffer=buffer) for buffer in kept),
        **how,
    )
    return (step,)


def of_workers(
    name: str,
    workload: Workload,
    tensors: tuple[Tensor, ...],
    ranks: int,
    optimizer: Optimizer,
    body: Sequence[Any],
    *more: Kept,
    parts: Sequence[int] = (),
) -> Plan:
    """The plan of one role for all ranks, with gradients, parameters, what the optimizer keeps, and `more`.

    `parts`: where the ranges end of which a rank updates a piece of its own, and keeps no more; empty: all is updated.
    """
    ratios = (buffer_of_ratios(len(tensors), workload.unit),) if optimizer.ratios else ()
    whole = (Kept("gradient", "gradient"), Kept("parameter", "parameter"), *more)
    elements, mine = tensors[-1].stop, (WORLD,) if parts else ()
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tensors,
        buffers=(
            *(Buffer(each.name, elements, workload.unit, role=each.role) for each in whole),
            *(
                Buffer(each.name, elements, workload.unit, role=each.role, mine=mine, ends=tuple(parts))
                for each in optimizer.kept
            ),
            *ratios,
        ),
        roles=(Role("worker", tuple(range(ranks)), tuple(body)),),
    )

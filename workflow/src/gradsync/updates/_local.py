"""Methods whose ranks go on by themselves for a period of iterations, and then synchronise their parameters.

A turn of the plan is a period: so many iterations of each rank alone, each a forward, a backward and a step of the
optimizer; then an all-reduce of the parameters, and what all make of the sum. Nothing waits for single gradients, so
that a backward is one operation. What the optimizer keeps stays each rank's own, as in the papers.
"""

from __future__ import annotations

from typing import Any

from gradsync.collectives import ALL_REDUCE, NATIVE, POSTCONDITION
from gradsync.errors import InputError
from gradsync.limits import MOST_PERIOD
from gradsync.optimizers import Kept, Optimizer
from gradsync.plan import Collective, Local, Plan, Ready, Ref, Repeat
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import NETWORK, Packed
from gradsync.updates._passes import forward
from gradsync.updates._steps import applied, of_workers

SUM = "sum"  # the operation that sums parameters, and the buffer that it fills


def planned(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    algorithm: str,
    optimizer: Optimizer,
    period: int,
    kernel: str,
    arguments: dict[str, float],
    *more: Kept,
) -> Plan:
    """The plan, in which `kernel` makes the next parameters, and `more`, of the sum of those of all ranks.

    Raises InputError for a period that is no number of iterations, and for what sums of gradients alone can have.
    """
    if not 1 <= period <= MOST_PERIOD:
        raise InputError(f"plan {name!r}: a period of {period} iterations: 1 to {MOST_PERIOD}")
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, own_rule=False)
    gradient, parameter, summed = (packed.all_of(key) for key in ("gradient", "parameter", SUM))
    backward = Ready(name="backward", tensor=None, reads=(parameter,), writes=(gradient,))
    steps = applied(optimizer, "update", gradient, 1, packed.tensors, requires=None, after=(backward.name,))
    iteration: tuple[Any, ...] = (forward(parameter.stop, ()), backward, *steps)
    body: tuple[Any, ...] = (
        Repeat(name="period", body=iteration, count=period),
        Collective(
            name=SUM,
            lane=NETWORK,
            kind=ALL_REDUCE,
            postcondition=POSTCONDITION[ALL_REDUCE],
            algorithm=NATIVE,
            after=("update",),
            after_previous=("synchronise",),
            reads=(parameter,),
            writes=(summed,),
        ),
        Local(
            name="synchronise",
            kernel=kernel,
            arguments={**arguments, "terms": float(ranks)},
            after=(SUM,),
            reads=(summed,),
            writes=(parameter, *(Ref(each.name, 0, parameter.stop) for each in more)),
        ),
    )
    return of_workers(name, workload, packed.tensors, ranks, optimizer, body, *more, Kept(SUM, "scratch"))

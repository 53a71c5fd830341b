"""Synchronous SGD: all workers sum their gradients, then update alike (MG-WFBP Eq. 2, Algorithm 2).

Differs from the paper's Algorithm 2: the sum is divided by N (Eq. 2 has it, line 13 leaves it out, MG-E13).
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan, Ref
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import backward, forward, laid_out, last_messages
from gradsync.updates._steps import SGD, applied, of_workers

AT_ONCE = True


def plan(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
    optimizer: Optimizer = SGD,
) -> Plan:
    """One role for all ranks: forward, backward with its messages, update once all are through."""
    tensors = laid_out(workload)
    elements = tensors[-1].stop
    sums = list(backward(tensors, messages, ranks, algorithm, shape))
    gradient = Ref("gradient", 0, elements)
    update = applied(optimizer, "update", gradient, ranks, tensors, requires="sum", after=last_messages(sums))
    body = (forward(elements, ("update",)), *sums, *update)
    return of_workers(name, workload, tensors, ranks, optimizer, body)

"""Synchronous SGD: all workers sum their gradients, then update alike (MG-WFBP Eq. 2, Algorithm 2).

Differs from the paper's Algorithm 2: the sum is divided by N (Eq. 2 has it, line 13 leaves it out, MG-E13).
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.plan import Buffer, Local, Plan, Ref, Role
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._passes import backward, forward, laid_out, last_messages

AT_ONCE = True


def plan(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
    lr: float = 0.01,
    momentum: float = 0.0,
) -> Plan:
    """One role for all ranks: forward, backward with its messages, update once all are through."""
    tensors = laid_out(workload)
    elements = tensors[-1].stop
    kept = ("parameter", "momentum") if momentum else ("parameter",)
    sums = list(backward(tensors, messages, ranks, algorithm, shape))
    update = Local(
        name="update",
        after=last_messages(sums),
        kernel="sgd",
        arguments={"lr": lr, "momentum": momentum, "scale": 1.0 / ranks},
        reads=(Ref("gradient", 0, elements),),
        writes=tuple(Ref(buffer, 0, elements) for buffer in kept),
        requires="sum",
    )
    return Plan(
        name=name,
        ranks=ranks,
        tensors=tensors,
        buffers=tuple(Buffer(buffer, elements, workload.unit, role=buffer) for buffer in ("gradient", *kept)),
        roles=(Role("worker", tuple(range(ranks)), (forward(elements, ("update",)), *sums, update)),),
    )

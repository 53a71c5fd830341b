"""Asynchronous SGD: a parameter server that applies each worker's gradient as it comes (Dean et al., NIPS 2012).

In the SC17 paper (Section 3.1) the server applies gradients under a lock, first come first served, and sends the
parameters back.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import Packed
from gradsync.updates._server import gradients
from gradsync.updates._steps import SGD

AVERAGED = False
MASTER = True


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
    """Rank 0 is the server."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1)
    return gradients(packed, 0.0)

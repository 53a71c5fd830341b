"""Asynchronous SGD with momentum, which the server keeps (SC17 paper, Eq. 3 and 4).

The server applies gradients one by one: of n workers an iteration moves n / (1 - mu) times lr, and staleness adds
momentum (Mitliagkas et al., Allerton 2016). So a rate suits it that is about an n-th of synchronous SGD's.

Differs from the paper: v <- mu v + g, w <- w - lr v, as torch.optim.SGD has it; the paper's V is -lr v.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import MOMENTUM, Packed
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
    momentum: float = MOMENTUM,
) -> Plan:
    """Rank 0 is the server, and has the momentum of all workers' gradients."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1)
    return gradients(packed, momentum)

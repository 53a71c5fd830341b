"""Asynchronous EASGD: elastic averaging, first come first served (SC17 paper, Section 5.1).

A worker sends its parameters and gets the centre while it computes its gradient; then the master pulls the centre by
Eq. 2 for one worker, and the worker updates by Eq. 1, both with the pair before.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import RHO, Packed
from gradsync.updates._server import elastic_exchanges
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
    rho: float = RHO,
) -> Plan:
    """Rank 0 is the master, who serves one worker at a time."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1)
    return elastic_exchanges(packed, rho, 0.0)

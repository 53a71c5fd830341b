"""Asynchronous EASGD with momentum of each worker (SC17 paper, Eq. 5 and 6); the master's rule is that of Eq. 2.

Differs from Zhang et al. (EAMSGD): the gradient is that of the parameters, without Nesterov's look ahead, as the SC17
paper has it.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import MOMENTUM, RHO, Packed
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
    momentum: float = MOMENTUM,
) -> Plan:
    """Rank 0 is the master, who serves one worker at a time."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1)
    return elastic_exchanges(packed, rho, momentum)

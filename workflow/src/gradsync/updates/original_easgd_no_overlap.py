"""Original EASGD*, without overlap: one worker at a time computes, between two transfers (SC17 paper, Table 3).

A worker gets the centre, computes its gradient, then sends its parameters; only then the next one gets the centre. A
turn is a sweep over all workers, as that of Original EASGD.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import RHO, Packed
from gradsync.updates._round_robin import planned
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
    """Rank 0 serves one worker after the other, each from its forward to its update."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1)
    return planned(packed, rho, overlapped=False)

"""Sync EASGD1: the centre is a host process's, the workers are GPUs (SC17 paper, Algorithm 2).

The exchange follows backward and crosses the links between host and GPUs; `ranks` counts the host process, rank 0.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._packed import RHO, Packed
from gradsync.updates._steps import SGD
from gradsync.updates._sync_easgd import planned

AVERAGED = False
ROOTED = True
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
    """Rank 0 broadcasts its centre, reduces, and pulls it; workers compute, exchange, and update."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1, rooted=shape)
    return planned(packed, rho, overlapped=False)

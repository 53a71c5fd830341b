"""Original EASGD: a master serves its workers round robin (Zhang et al., NIPS 2015; SC17 paper, Algorithm 1).

An iteration of the paper is that of one worker; a turn of this plan is a sweep over all of them. A worker's exchange
goes on beside its forward and backward.

Differs from the paper: a worker begins its forward once it has updated, not once the master has come to it, so that
forward and backward go on beside the exchanges of the others, too. The centre is the master's (EA-E01), which pulls it
to the parameters that it has fetched, by the centre that it has sent (EA-E03).
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
    """Rank 0 exchanges with one worker after the other, in order of rank."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, masters=1)
    return planned(packed, rho, overlapped=True)

"""Sync EASGD3, Communication Efficient EASGD: Algorithm 3 of the SC17 paper, its exchange beside computation.

The centre and all parameters are known when an iteration begins: broadcast and reduce (lines 11 and 12) need nothing of
forward and backward (lines 7 to 10).
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
    """All ranks are workers, and rank 0 has the centre, too; it exchanges while it computes."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, rooted=shape)
    return planned(packed, rho, overlapped=True)

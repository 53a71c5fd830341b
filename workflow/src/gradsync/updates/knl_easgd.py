"""EASGD on a cluster of KNL nodes: the centre is the first node's (SC17 paper, Algorithm 4).

Each node has its samples, so that nothing but parameters travels. The paper lists the exchange after forward and
backward, and calls the algorithm Communication Efficient EASGD, as it calls Sync EASGD3: here it goes on beside them,
as there.

Differs from the paper: samples are dealt to nodes from one set, and the paper's nodes have a copy of the set each.
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
    """All nodes are workers, and node 0 has the centre, too; it exchanges while it computes."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer, rooted=shape)
    return planned(packed, rho, overlapped=True)

"""Hogwild EASGD: elastic averaging with a centre that all workers share, without a lock (SC17 paper, Section 5.1).

All ranks are workers, on one host. A worker reads the centre beside its forward and backward; both halves of its
exchange are of the centre that it read, which others may have changed meanwhile. `locked` adds one after the other, of
which none is lost. That it converges is seen, not proven, where the loss is not convex (EA-E05).
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._hogwild import elastic_exchanges
from gradsync.updates._packed import RHO, Packed
from gradsync.updates._steps import SGD

AVERAGED = False
IN_MEMORY = True


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
    locked: bool = False,
) -> Plan:
    """Each worker reads the centre, adds its difference to it, and updates."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer)
    return elastic_exchanges(packed, rho, locked)

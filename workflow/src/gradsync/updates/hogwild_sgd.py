"""Hogwild: workers add to parameters that all share, without a lock (Recht et al., NIPS 2011; SC17 paper, Section 3.2).

All ranks are workers, on one host. `locked` adds one after the other, of which none is lost.
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._hogwild import gradients
from gradsync.updates._packed import Packed
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
    locked: bool = False,
) -> Plan:
    """Each worker reads the parameters, which are the centre, and adds what SGD adds."""
    packed = Packed(name, workload, messages, ranks, algorithm, optimizer)
    return gradients(packed, locked)

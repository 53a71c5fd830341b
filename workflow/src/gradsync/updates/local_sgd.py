"""Local SGD: ranks go on by themselves for a period of H iterations, then average their parameters.

Source: Stich, Local SGD Converges Fast and Communicates Little (ICLR 2019, arXiv 1805.09767), Algorithm 1 with equal
gaps H between its synchronisations. With a period of 1 and plain SGD it is synchronous SGD.

Differs from the paper: steps are any optimizer's, whose moments stay each rank's own (the paper has plain SGD).
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.optimizers import Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._local import planned
from gradsync.updates._steps import SGD

AVERAGED = False
STEPS = True
PERIOD = 8  # iterations


def plan(
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
    optimizer: Optimizer = SGD,
    period: int = PERIOD,
) -> Plan:
    """All ranks are workers; a turn is a period."""
    return planned(name, workload, messages, ranks, algorithm, optimizer, period, "average", {})

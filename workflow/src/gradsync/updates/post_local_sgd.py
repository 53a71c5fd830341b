"""Post-local SGD: mean gradients at first, then local SGD (Lin et al., ICLR 2020, arXiv 1808.07217, Section 3).

The plan is that of the second phase. The first is trained by a plan of its own, of any scheme that applies the mean
gradient, and `gradsync elastic` goes from one to the other: parameters and momentum are carried over, so that all ranks
begin with the same momentum, as in the paper (Section 4: "local momentum").
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
BEFORE = "ssgd"
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

"""DiLoCo: local steps of an inner optimizer, then one of an outer (Douillard et al., arXiv 2311.08105).

Algorithm 1: every rank makes H inner steps from the parameters that all began with (the centre); the mean over ranks of
what these moved is the outer gradient, which an outer SGD with Nesterov momentum applies to the centre. The paper's
inner optimizer is AdamW; moments stay each rank's own.

Differs from the paper: parameters are summed, not outer gradients, which is the same sum; and the default period is the
shortest that the paper tries (its own is 500, for trainings of 88,000 steps).
"""

from __future__ import annotations

from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.optimizers import Kept, Optimizer
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.updates._local import planned
from gradsync.updates._steps import SGD

AVERAGED = False
STEPS = True
PERIOD = 50  # iterations
OUTER_LR, OUTER_MOMENTUM = 0.7, 0.9  # of the paper
CENTRE, VELOCITY = Kept("centre", "centre"), Kept("outer_momentum")


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
    outer_lr: float = OUTER_LR,
    outer_momentum: float = OUTER_MOMENTUM,
) -> Plan:
    """All ranks are workers, and each has the centre; a turn is a period."""
    if not outer_lr > 0:
        raise InputError(f"plan {name!r}: an outer learning rate of {outer_lr:g}: above 0, or nothing is learnt")
    if not 0 <= outer_momentum < 1:
        raise InputError(f"plan {name!r}: an outer momentum of {outer_momentum:g}: at least 0 and below 1")
    rates = {"outer_lr": outer_lr, **({"outer_momentum": outer_momentum} if outer_momentum else {})}
    kept = (CENTRE, VELOCITY) if outer_momentum else (CENTRE,)
    return planned(
        *(name, workload, messages, ranks, algorithm, optimizer, period),
        *("outer_nesterov", rates, *kept),
    )

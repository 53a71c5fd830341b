"""Plans of methods of their own for a few layers in float64, and what their values must be, by plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradsync import optimizers, updates
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from tiny_plans import SIZES, pull, start
from tiny_workloads import workload

LR, RHO, MOMENTUM = 0.125, 0.5, 0.75
ELEMENTS = sum(SIZES)
WHOLE = (Message(0, len(SIZES) - 1),)
Ends = tuple[np.ndarray, list[np.ndarray]]  # the centre, and the parameters of each worker


def load(update: float = 0.0) -> Workload:
    return workload([8 * size for size in SIZES], [1.0, 2.0, 3.0, 4.0], forward=2.0, update=update, dtype="float64")


def planned(method: str, ranks: int, **options: Any) -> Plan:
    """The plan of a method; options that it doesn't have are left out."""
    settings = {"rho": RHO, "momentum": MOMENTUM} | options
    known = {key: value for key, value in settings.items() if key in updates.options(method)}
    return updates.plan(method, method, load(), WHOLE, ranks, optimizer=optimizers.get("sgd", lr=LR), **known)


def synchronous(ranks: tuple[int, ...], turns: int) -> Ends:
    """Sync EASGD of these ranks as workers: Eq. 1 and 2, both with the pair before the update."""
    centre, parameters = start(ELEMENTS), [start(ELEMENTS) for _ in ranks]
    for turn in range(turns):
        gradients = [pull(rank, turn, parameter) for rank, parameter in zip(ranks, parameters, strict=True)]
        moved = centre + LR * RHO * np.sum([parameter - centre for parameter in parameters], axis=0)
        parameters = [w - LR * (g + RHO * (w - centre)) for w, g in zip(parameters, gradients, strict=True)]
        centre = moved
    return centre, parameters

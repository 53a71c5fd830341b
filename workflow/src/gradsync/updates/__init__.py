"""Updates: what workers do with gradients, written as the roles of a plan.

An update is one file here with

    plan(name, workload, messages, ranks, *, algorithm, shape, lr, momentum, wire, loss_scaling, statistics, accumulate,
         clip_norm) -> Plan

Discovery finds the file; its name is the update's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from gradsync.names import modules_in, refuse_unknown
from gradsync.plan import Plan


def names() -> list[str]:
    """Names of all updates, sorted."""
    return modules_in(__path__)


def get(name: str) -> Callable[..., Plan]:
    """The plan builder of that name; raises InputError that lists the known ones."""
    refuse_unknown("update", name, names())
    return importlib.import_module(f"{__name__}.{name}").plan

"""Updates: what workers do with gradients, written as the roles of a plan.

An update is one file of this folder with

    plan(name, workload, messages, ranks, *, algorithm, shape, optimizer) -> Plan
    AT_ONCE     optional, True: it applies all gradients at once
    HALVED      optional, True: its messages are reduce-scatters and all-gathers
    PIECES      optional, True: a rank applies gradients to pieces of its own, which are no whole tensors

which plans the plain step: what a step may have besides (`transforms/step.py`), a narrow wire for instance, is added to
the plan of any update. Discovery finds the file; its name is the update's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from gradsync.names import modules_in, refuse_unknown
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.transforms.step import Step

DEFAULTS = Step()


def names() -> list[str]:
    """Names of all updates, sorted."""
    return modules_in(__path__)


def get(name: str) -> Callable[..., Plan]:
    """What plans the plain step of the update of that name; raises InputError that lists the known ones."""
    refuse_unknown("update", name, names())
    return importlib.import_module(f"{__name__}.{name}").plan


def at_once(name: str) -> bool:
    """Whether an update applies all gradients at once, as clipping and a loss scale need it."""
    return _declares(name, "AT_ONCE")


def halved(name: str) -> bool:
    """Whether an update's messages are reduce-scatters and all-gathers, which not every collective has."""
    return _declares(name, "HALVED")


def pieces(name: str) -> bool:
    """Whether an update has pieces for each rank, which an optimizer by norms of whole tensors can't have."""
    return _declares(name, "PIECES")


def _declares(name: str, what: str) -> bool:
    get(name)
    return bool(getattr(importlib.import_module(f"{__name__}.{name}"), what, False))


def plan(
    update: str,
    name: str,
    workload: Workload,
    messages: tuple[Message, ...],
    ranks: int,
    *,
    step: Step = DEFAULTS,
    **settings: Any,
) -> Plan:
    """Plan an update with what a step has besides; `settings` are those of the update itself.

    Raises InputError for an update that doesn't exist, and for a step that makes no sense with it.
    """
    return step.added_to(get(update)(name, workload, messages, ranks, **settings), workload.statistics)

"""Updates: what workers do with gradients, written as the roles of a plan.

An update is one file of this folder with

    plan(name, workload, messages, ranks, *, algorithm, shape, optimizer) -> Plan
    AT_ONCE     optional, True: it applies all gradients at once, so that norms can be dealt to ranks
    HALVED      optional, True: its messages are reduce-scatters and all-gathers
    AVERAGED    optional, False: an iteration does not apply the mean gradient of all ranks
    MASTER      optional, True: rank 0 is a master that computes no gradients, and the other ranks are the workers
    STEPS       optional, True: a method whose ranks make steps of the optimizer, and synchronise once a period
    IN_MEMORY   optional, True: all ranks share memory, so that they are on one machine
    ROOTED      optional, True: a method that reduces to rank 0 and broadcasts from there, by any collective with a root
    BEFORE      optional, the update by which a training begins, if the method's plan is that of a second phase
    PIECES      optional, True: a rank applies gradients to pieces of its own, which are no whole tensors

which plans the plain step: what a step may have besides (`transforms/step.py`), a narrow wire for instance, is added to
the plan of any update that applies the mean gradient. Discovery finds the file; its name is the update's name.

Updates that apply the mean gradient all compute the same, and differ in what travels when. The others (elastic
averaging, parameter servers, shared memory, local steps) are methods of their own, each a scheme of its name. They
take options, keyword arguments with defaults, send all parameters packed in one message, and leave a narrow wire,
clipping, micro-batches and a loss scale out. Batch-norm statistics stay each rank's own.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from gradsync.errors import InputError
from gradsync.names import modules_in, near, refuse_unknown, shown
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.transforms.step import Step

DEFAULTS = Step()
COMMON = ("algorithm", "shape", "optimizer")  # keyword arguments of all updates


def names() -> list[str]:
    """Names of the updates that apply the mean gradient of all ranks, sorted."""
    return [name for name in modules_in(__path__) if averaged(name)]


def methods() -> list[str]:
    """Names of the other updates, each a method of its own, sorted."""
    return [name for name in modules_in(__path__) if not averaged(name)]


def get(name: str) -> Callable[..., Plan]:
    """What plans the plain step of the update of that name; raises InputError that lists the known ones."""
    planner: Callable[..., Plan] = _module(name).plan
    return planner


def options(name: str) -> dict[str, Any]:
    """The options of an update and their defaults, beside what all updates take."""
    parameters = inspect.signature(get(name)).parameters.values()
    keywords = {each.name: each.default for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    return {key: default for key, default in keywords.items() if key not in COMMON}


def refuse_options(name: str, chosen: Mapping[str, Any]) -> None:
    """Raises InputError for an option that the update does not have, or whose value is of another type."""
    known = options(name)
    for key, value in chosen.items():
        if key not in known:
            has = ", ".join(known) or "none"
            raise InputError(f"update {name!r} has no option {key!r}; {near(key, known)}it has: {has}")
        kind = type(known[key])
        fits = isinstance(value, int | float) and not isinstance(value, bool) if kind is float else type(value) is kind
        if not fits:
            raise InputError(f"update {name!r}: option {key} needs a value like {known[key]!r}, not {shown(value)}")


def at_once(name: str) -> bool:
    """Whether an update applies all gradients at once, as norms need it that are dealt to ranks."""
    return _declares(name, "AT_ONCE")


def halved(name: str) -> bool:
    """Whether an update's messages are reduce-scatters and all-gathers, which not every collective has."""
    return _declares(name, "HALVED")


def averaged(name: str) -> bool:
    """Whether every iteration applies the mean gradient of all ranks, so that all of these updates compute the same."""
    return bool(getattr(_module(name), "AVERAGED", True))


def masters(name: str) -> int:
    """Ranks that compute no gradients: 1 if rank 0 is a master, else 0."""
    return int(_declares(name, "MASTER"))


def steps(name: str) -> bool:
    """Whether ranks make steps of the optimizer by themselves, and synchronise their parameters once a period."""
    return _declares(name, "STEPS")


def rooted(name: str) -> bool:
    """Whether an update reduces to rank 0 and broadcasts from there."""
    return _declares(name, "ROOTED")


def in_memory(name: str) -> bool:
    """Whether all ranks of an update share memory."""
    return _declares(name, "IN_MEMORY")


def before(name: str) -> str:
    """The update by which a training begins before it goes on with this one; empty: with this one."""
    return str(getattr(_module(name), "BEFORE", ""))


@cache
def _module(name: str) -> Any:
    refuse_unknown("update", name, modules_in(__path__))
    return importlib.import_module(f"{__name__}.{name}")


def pieces(name: str) -> bool:
    """Whether an update has pieces for each rank, which an optimizer by norms of whole tensors can't have."""
    return _declares(name, "PIECES")


def _declares(name: str, what: str) -> bool:
    return bool(getattr(_module(name), what, False))


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
    if not averaged(update):
        _refuse_more(update, step)
        return get(update)(name, workload, messages, ranks, **settings)
    return step.added_to(get(update)(name, workload, messages, ranks, **settings), workload.statistics)


def _refuse_more(update: str, step: Step) -> None:
    """Raises InputError for what only a step of the mean gradient can have."""
    asked = {
        "a narrow wire": bool(step.wire),
        "a loss scale": step.loss_scaling,
        "micro-batches": step.accumulate != 1,
        "clipping": step.clip_norm is not None,
        "PTO": step.pto,
    }
    for what, is_asked in asked.items():
        if is_asked:
            raise InputError(
                f"update {update!r} applies no mean gradient of all ranks, which {what} belongs to: leave it out, or "
                f"take a scheme with update {', '.join(names())}"
            )

"""Schedules: which gradients travel together, when, on which lane.

A schedule is one file here with a function

    schedule(workload, cost, **options) -> tuple[Message, ...]

It gets the workload (layers in backward order) and the cost of an all-reduce, and returns the messages in the order
sent. Discovery finds the file; its name is the schedule's name. A planner knows no rank, no clock, no file. A schedule
whose messages are not all-reduces names the update that they are made for: UPDATE.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.names import modules_in, near, refuse_unknown
from gradsync.plan.workload import Workload

DEFAULT_LANE = "network"


class Message(NamedTuple):
    """Layers first..last (indices in backward order) in one message; `after_backward` holds it until backward ends.

    It also waits for the messages whose numbers are in `after`, whatever their lanes. `part` = (index, pieces): only
    that piece of the layers' range, if a message is split over lanes. With update `sharded` its gather follows message
    number `gathered_after` on its lane; None: it follows all of them.
    """

    first: int
    last: int
    lane: str = DEFAULT_LANE
    after_backward: bool = False
    after: tuple[int, ...] = ()
    part: tuple[int, int] = (0, 1)
    gathered_after: int | None = None


Schedule = Callable[..., tuple[Message, ...]]


def names(made_for: str | None = None) -> list[str]:
    """Names of all schedules, or of those made for an update, sorted."""
    every = modules_in(__path__)
    return every if made_for is None else [name for name in every if update(name) == made_for]


def get(name: str) -> Schedule:
    """The schedule function of that name; raises InputError that lists the known ones."""
    refuse_unknown("schedule", name, names())
    return importlib.import_module(f"{__name__}.{name}").schedule


def options(name: str) -> dict[str, Any]:
    """The options of a schedule and their defaults."""
    parameters = inspect.signature(get(name)).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def update(name: str) -> str:
    """The update that a schedule's messages are made for: what its file says (UPDATE), else synchronous SGD."""
    return str(getattr(importlib.import_module(f"{__name__}.{name}"), "UPDATE", "ssgd"))


def lanes(name: str, chosen: dict[str, Any]) -> int:
    """On how many lanes a schedule sends: its option of that name, or what its file says (LANES); else 1."""
    default = getattr(importlib.import_module(f"{__name__}.{name}"), "LANES", 1)
    return int({**options(name), **chosen}.get("lanes", default))


def refuse_options(name: str, chosen: dict[str, Any]) -> None:
    """Raises InputError for an option that the schedule does not have or whose value is of another type."""
    known = options(name)
    for key, value in chosen.items():
        if key not in known:
            has = ", ".join(f"{k}={v}" for k, v in known.items()) or "none"
            raise InputError(f"schedule {name!r} has no option {key!r}; {near(key, known)}it has: {has}")
        if type(known[key]) is not type(value) and not (isinstance(known[key], float) and isinstance(value, int)):
            raise InputError(f"schedule {name!r}, option {key!r}: {value!r} is not a {type(known[key]).__name__}")


def messages(name: str, workload: Workload, cost: MessageCost, chosen: dict[str, Any]) -> tuple[Message, ...]:
    """Run a schedule; raises InputError for an option that it does not have or a value that it refuses."""
    refuse_options(name, chosen)
    return get(name)(workload, cost, **chosen)


def dealt(in_order: Sequence[Message], lanes: int) -> tuple[Message, ...]:
    """These messages over so many lanes in turn; a single lane is the default one. Raises InputError below 1."""
    if lanes < 1:
        raise InputError(f"option lanes={lanes}: at least 1")
    if lanes == 1:
        return tuple(in_order)
    return tuple(message._replace(lane=f"{DEFAULT_LANE}{number % lanes}") for number, message in enumerate(in_order))


def grouped(lasts: Iterable[int]) -> tuple[Message, ...]:
    """Messages on the default lane, given the last layer of each."""
    grouped_layers, first = [], 0
    for last in lasts:
        grouped_layers.append(Message(first, last))
        first = last + 1
    return tuple(grouped_layers)

"""A scheme is a composition of parts: schedule, collective, update. Here schemes are named, refused and planned."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync import collectives, schedules, updates
from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.plan import DTYPE_BYTES, Plan, first_problem
from gradsync.workload import Workload


class Scheme(BaseModel):
    """One point in the product of the parts, with the paper's name for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    schedule: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    collective: str = collectives.NATIVE
    update: str = "ssgd"
    wire: Literal["", "float32", "float16", "bfloat16"] = ""  # the type that gradients travel in; empty: their own
    label: str = ""
    paper: str = ""
    place: str = ""

    def model_post_init(self, context: Any) -> None:
        """Defaults that depend on the name."""
        object.__setattr__(self, "schedule", self.schedule or self.name)
        object.__setattr__(self, "label", self.label or self.name)

    def refuse_nonsense(self, where: str) -> None:
        """Raises InputError where a part does not exist or an option is not the schedule's."""
        try:
            schedules.refuse_options(self.schedule, self.options)
            if self.collective != collectives.NATIVE:
                collectives.get(self.collective)
            updates.get(self.update)
        except InputError as error:
            raise InputError(f"{where}, scheme {self.name!r}: {error}") from None

    def refuse_ranks(self, ranks: int) -> None:
        """Raises InputError for a number of ranks that the scheme's parts can't serve."""
        try:
            if ranks < 1:
                raise InputError(f"{ranks} ranks: at least 1")
            if self.collective != collectives.NATIVE:
                collectives.get(self.collective).rounds(ranks)
        except InputError as error:
            raise InputError(f"scheme {self.name!r}: {error}") from None


def load(path: str | Path) -> dict[str, Scheme]:
    """All schemes: those that the file names and one a discovered schedule; raises InputError with file and key."""
    try:
        entries = yaml.safe_load(Path(path).read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: can't be read: {' '.join(str(error).split())}") from None
    if not isinstance(entries, dict):
        raise InputError(f"{path}: needs scheme names as keys")
    found: dict[str, Scheme] = {}
    for name, entry in entries.items():
        try:
            found[name] = Scheme(name=name, **(entry or {}))
        except (ValidationError, TypeError) as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else "needs keys and values"
            raise InputError(f"{path}, scheme {name!r}: {reason}") from None
        found[name].refuse_nonsense(str(path))
    for name in schedules.names():
        found.setdefault(name, Scheme(name=name))
    return found


def pick(known: dict[str, Scheme], names: list[str] | None, where: str) -> list[Scheme]:
    """The schemes of these names (None: all); raises InputError for one that does not exist."""
    for name in names or ():
        if name not in known:
            raise InputError(f"{where}: scheme {name!r} does not exist; there are: {', '.join(known)}")
    return list(known.values()) if names is None else [known[name] for name in names]


def plan(
    scheme: Scheme,
    workload: Workload,
    cost: MessageCost,
    ranks: int,
    *,
    lr: float = 0.01,
    momentum: float = 0.0,
    loss_scaling: bool = False,
    statistics: bool = True,
) -> Plan:
    """Plan a scheme for a workload; `cost` is that of an all-reduce between `ranks` ranks.

    `loss_scaling` guards float16 computation, `statistics` broadcasts rank 0's batch-norm statistics.

    Raises InputError for an option or a number of ranks that the scheme's parts refuse.
    """
    scheme.refuse_ranks(ranks)
    messages = schedules.messages(scheme.schedule, _on_the_wire(workload, scheme.wire), cost, scheme.options)
    made = updates.get(scheme.update)(
        scheme.name,
        workload,
        messages,
        ranks,
        algorithm=scheme.collective,
        lr=lr,
        momentum=momentum,
        wire=scheme.wire,
        loss_scaling=loss_scaling,
        statistics=statistics,
    )
    origin = {"scheme": scheme.name, "schedule": scheme.schedule, "workload": workload.name}
    return dataclasses.replace(made, provenance={**origin, "all_reduce": cost.describe()})


def _on_the_wire(workload: Workload, wire: str) -> Workload:
    """What the schedule sees: the bytes that travel."""
    if not wire or wire == workload.unit:
        return workload
    if workload.unit == "uint8":
        raise InputError(f"workload {workload.name!r}: sizes are no whole elements: can't travel as {wire}")
    share = DTYPE_BYTES[wire] / DTYPE_BYTES[workload.unit]
    layers = [
        layer.model_copy(update={"bytes": round(layer.bytes * share), "dtype": wire}) for layer in workload.layers
    ]
    return workload.model_copy(update={"layers": tuple(layers)})

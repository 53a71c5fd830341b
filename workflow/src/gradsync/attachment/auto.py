"""What `plan="auto"` may choose from: the starting plan, and the candidates with their predicted iterations.

A candidate sums the same gradients in another grouping and order, so that it trains the same up to the order of sums.
Its sums are left to the user's own optimizer: what a plan that updates parameters itself keeps could not be taken over
from an optimizer that has begun.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import nn

from gradsync import schedules, updates
from gradsync.attachment.planning import Sources, scheme_of
from gradsync.check import check
from gradsync.collectives import NATIVE
from gradsync.configuration import schemes
from gradsync.configuration.schemes import Scheme
from gradsync.costs import Linear, MessageCost, Network, alpha_beta
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.experiments.costs import of_text
from gradsync.plan import Plan
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime.compute import statistics

AUTO = "auto"
START = "fixed_buckets"  # as stock DDP does with its default bucket size


@dataclass(frozen=True)
class Auto:
    """How a plan is chosen while the model trains; all counts are of iterations that send gradients.

    The first `discard` are not looked at, and the next `warmup` are profiled. At most some `measure_seconds` go into
    all-reduces then (no more than one large one takes, if that is longer). The best of `schedules` by its prediction is
    compared with the starting plan `trials` times in four blocks (A B B A) of `steps` iterations, each after one that
    is not timed. Without trials the prediction decides.
    """

    discard: int = 3
    warmup: int = 10
    steps: int = 3
    trials: int = 3
    measure_seconds: float = 2.0
    schedules: tuple[str, ...] = ("optimal", "mgwfbp", "wfbp", "single", START)

    def refuse(self) -> None:
        """Raises InputError for a number that is out of range, or a schedule that can't be a candidate."""
        least = {"discard": 0, "warmup": 1, "steps": 1, "trials": 0}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in least and not (type(value) is int and value >= least[field.name]):
                raise InputError(
                    f"attach: Auto({field.name}={value!r}): a whole number of at least {least[field.name]}"
                )
        seconds = self.measure_seconds
        if type(seconds) not in (int, float) or not (seconds > 0 and math.isfinite(seconds)):
            raise InputError(f"attach: Auto(measure_seconds={seconds!r}): seconds above 0")
        if not isinstance(self.schedules, tuple) or not self.schedules:
            raise InputError(f"attach: Auto(schedules={self.schedules!r}): a tuple of names of schemes")
        for name in self.schedules:
            _refuse_candidate(scheme_of(name))


def _refuse_candidate(scheme: Scheme) -> None:
    reason = ""
    if scheme.phases:
        reason = "has phases: name a scheme of one of them"
    elif scheme.changes_training or not scheme.averaged:
        reason = f"changes what is trained: {scheme.changes_training or 'it applies no mean gradient'}"
    elif not updates.at_once(scheme.update):
        reason = (
            "updates parameters itself, and the optimizer has begun by then: attach to its plan from the first step on"
        )
    elif scheme.pto:
        reason = "deals out norms for an optimizer of its own, and yours applies the gradients"
    elif scheme.collective != NATIVE:
        reason = f"sums by {scheme.collective!r}, and only the backend's own all-reduce is measured here"
    elif schedules.lanes(scheme.schedule, scheme.options) > 1:
        reason = "sends on several lanes, and messages at the same time are not measured here"
    if reason:
        raise InputError(f"attach: Auto: scheme {scheme.name!r} {reason}")


def asked_for(plan: Any, all_reduce: str | None) -> tuple[Auto | None, str | None]:
    """What rank 0 asks for, and what it says of all-reduces, on all ranks: as with a plan, its word counts. Collective.

    Without an `Auto` it has a plan, and each rank its own word of all-reduces.
    """
    mine = Auto() if isinstance(plan, str) and plan == AUTO else plan
    shared: list[Any] = [mine if isinstance(mine, Auto) else None, all_reduce]
    dist.broadcast_object_list(shared, 0)
    options, known = shared
    return options, all_reduce if options is None else known


def starting_plan(model: nn.Module, parameters: dict[str, nn.Parameter], sources: Sources) -> Plan:
    """The buckets of stock DDP, in the order that it takes before it knows better.

    `sources` may give what all-reduces take, and nothing else, or InputError is raised.
    """
    if sources.workload is not None or sources.inputs is not None:
        raise InputError("attach: plan='auto' measures the loop itself: leave out workload= and inputs=")
    layers = tuple(layer_of(name, parameters[name], 0.0) for name in reversed(parameters))
    workload = Workload(
        name=type(model).__name__,
        forward_seconds=0.0,
        layers=layers,
        statistics=sum(buffer.numel() for buffer in statistics(model)) if sources.broadcast_buffers else 0,
    )
    return _planned(scheme_of(START), workload, Linear(0.0, 0.0))


def layer_of(name: str, parameter: nn.Parameter, backward_seconds: float) -> Layer:
    """The layer of a parameter that is trained."""
    return Layer(
        name=name,
        bytes=parameter.numel() * parameter.element_size(),
        elements=parameter.numel(),
        backward_seconds=backward_seconds,
        dtype=str(parameter.dtype).removeprefix("torch."),
    )


class Candidate(NamedTuple):
    """A plan and its predicted iteration."""

    scheme: str
    plan: Plan
    seconds: float


def candidates(names: tuple[str, ...], workload: Workload, all_reduce: str | None, measured: Any) -> list[Candidate]:
    """The plans of all schemes, the fastest first, of equals the one with fewer messages.

    All-reduces take what the text says, as --allreduce takes it, or else what was `measured`.
    """
    found = []
    for name in names:
        scheme, ranks = scheme_of(name), dist.get_world_size()
        if all_reduce is None:
            cost, network = measured, Network({**alpha_beta.around(measured, ranks).costs, "all_reduce": measured})
        else:
            known = of_text(all_reduce, scheme, ranks)
            cost, network = known.all_reduce, known.network
        plan = _planned(scheme, workload, cost)
        found.append(Candidate(name, plan, simulate(plan, workload, network).iteration_seconds(plan.pace)))
    return sorted(found, key=lambda each: (each.seconds, len(each.plan.messages())))


def _planned(scheme: Scheme, workload: Workload, cost: MessageCost) -> Plan:
    plan = schemes.plan(scheme, workload, cost, dist.get_world_size(), optimizer="sgd", lr=1.0)
    check(plan)
    return plan

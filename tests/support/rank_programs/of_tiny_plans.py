"""Execution of tiny plans of every kind."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import tiny_plans as tiny
from gradsync import collectives
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.plan.trace import Trace
from gradsync.rounds.lowering import lowered
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups
from gradsync.runtime.step import Step

TINY_TURNS = 5
HAMMER_TURNS, HAMMER_ELEMENTS = 200, 20_000


@dataclasses.dataclass
class Ended:
    """Buffers at the end and what happened on the way."""

    buffers: dict[str, np.ndarray]
    trace: Trace


def tiny_cases(ranks: int) -> dict[str, Plan]:
    """Every tiny plan that this number of ranks can run."""
    cases = {
        "two lanes": tiny.two_lanes(ranks),
        "repeated": tiny.repeated(ranks, 3),
        "uneven roles": tiny.uneven_roles(ranks),
        "sparse": tiny.sparse(ranks),
        "dealt ratios": tiny.dealt_ratios(ranks),
        "sharded": tiny.sharded(ranks),
        "hogwild": tiny.hogwild(ranks),
        "easgd": tiny.easgd_round_robin(ranks - 1),
        "server": tiny.async_server(ranks - 1),
    }
    if ranks % 2 == 0:
        cases["in groups"] = tiny.in_groups(2, ranks // 2)
        cases["summed on axes"] = tiny.summed_on_axes(2, ranks // 2)
        cases["sharded on axes"] = tiny.sharded_on_axes(2, ranks // 2)
        cases["summed on axes, by rings"] = with_rings(tiny.summed_on_axes(2, ranks // 2))
        cases["summed on axes, by rings spelled out"] = lowered(cases["summed on axes, by rings"])
    for algorithm in ("native", *collectives.names("broadcast")):
        plan = tiny.reduced_and_broadcast(ranks, algorithm)
        cases |= {f"reduced and broadcast, {algorithm}": plan, f"the same, {algorithm} spelled out": lowered(plan)}
    for algorithm in ("native", "pairwise"):
        plan = tiny.exchanged(ranks, algorithm)
        cases |= {f"exchanged, {algorithm}": plan, f"exchanged, {algorithm} spelled out": lowered(plan)}
    for algorithm in collectives.names():
        try:
            plan = tiny.synchronous(ranks, algorithm=algorithm, shape=tiny.levels(algorithm, ranks))
            cases[f"{algorithm} spelled out"] = lowered(plan)
            cases[f"{algorithm} lowered when executed"] = plan
        except InputError:
            continue
    return cases


def with_rings(plan: Plan) -> Plan:
    """The plan with rings in the place of the backend's own collectives."""
    (role,) = plan.roles
    body = tuple(dataclasses.replace(op, algorithm="ring") if op.verb == "collective" else op for op in role.body)
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def pull_of(case: str) -> Any:
    """Where ranks race for one buffer, only gradients that do not depend on it have one right result."""
    return tiny.fixed_pull if case == "hogwild" else tiny.pull


def all_tiny_plans(rank: int, ranks: int) -> dict[str, Ended]:
    """Every tiny plan executed."""
    groups = Groups()
    ended = {}
    for name, plan in tiny_cases(ranks).items():
        executor = Executor(plan, rank, groups)
        for buffer in ("parameter", "centre"):
            if buffer in executor.buffers:
                executor.buffers[buffer].copy_(torch.from_numpy(tiny.start(plan.tensors[-1].stop)))
        dist.barrier()  # shared buffers have their first values
        executor.run(TINY_TURNS, compute_with(executor, pull_of(name)))
        dist.barrier()
        ended[name] = Ended({key: value.numpy().copy() for key, value in executor.buffers.items()}, executor.trace())
    hammer = tiny.hogwild(ranks, [HAMMER_ELEMENTS])
    ended["hammer"] = _hammer(rank, groups, hammer)
    ended["hammer on two lanes"] = _hammer(rank, groups, _on_two_lanes(hammer))
    groups.close()
    return ended


def _hammer(rank: int, groups: Groups, plan: Plan) -> Ended:
    """All ranks add ones to the shared buffer as fast as they can."""
    executor = Executor(plan, rank, groups)
    dist.barrier()
    executor.run(
        HAMMER_TURNS, compute_with(executor, lambda rank, turn, parameter: np.ones_like(parameter)), record=False
    )
    dist.barrier()
    return Ended({"centre": executor.buffers["centre"].numpy().copy()}, executor.trace())


def _on_two_lanes(plan: Plan) -> Plan:
    """What a rank adds, it adds on another lane too, at the same time."""
    (role,) = plan.roles
    *body, push = role.body
    *_, ready = body
    again = dataclasses.replace(push, name="again", lane="other", after=(ready.name,))
    waiting = dataclasses.replace(ready, after_previous=("again",))
    role = dataclasses.replace(role, body=(*body[:-1], waiting, push, again))
    return dataclasses.replace(plan, roles=(role,))


def compute_with(executor: Executor, pull: Any) -> Any:
    def compute(turn: int, step: Step) -> None:
        for layer in step.needs:
            step.need(layer)
        gradient = torch.from_numpy(pull(executor.rank, turn, executor.buffers["parameter"].numpy()))
        step.backward()
        for tensor in executor.plan.tensors[::-1]:  # not the order of the plan: that must not matter
            step.ready(tensor.name, gradient[tensor.start : tensor.stop])

    return compute

"""Batch-norm statistics follow rank 0's, as in PyTorch DDP.

Differs from DDP, which broadcasts them before forward: in a plan they travel as the first message of the backward pass,
which the next forward sees alike. With several micro-batches per step they are those of the last one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync.errors import InputError
from gradsync.plan import COMPUTE, Buffer, Collective, Need, Plan, Ref, Role
from gradsync.schedules import DEFAULT_LANE
from gradsync.transforms._edits import Body, computes, operations, with_bodies, with_buffer

TRANSFORM = "a broadcast of statistics"
BUFFER = "statistics"


def broadcast(plan: Plan, elements: int) -> Plan:
    """The plan with that many elements of statistics, which forward changes and rank 0 sends to all.

    Raises InputError for none, and for a plan in which not all ranks compute.
    """
    if elements < 1:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs at least 1 element, not {elements}")
    if not all(any(computes(body) for body in _bodies(role)) for role in plan.roles):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} is a message of all ranks, of which some compute nothing")
    plan = with_buffer(plan, Buffer(BUFFER, elements, role="statistics"), TRANSFORM)
    whole = (Ref(BUFFER, 0, elements),)
    lanes = (op.lane for op in operations(plan.roles[0].body) if getattr(op, "lane", COMPUTE) != COMPUTE)
    message = Collective(
        name=BUFFER,
        lane=next(lanes, DEFAULT_LANE),
        kind="broadcast",
        reads=whole,
        writes=whole,
        postcondition="copy",
    )

    def edited(role: Role, body: Body) -> Iterator[Any]:
        passes = list(_ends_of_each_forward(body)) if computes(body) else []
        changing = {op.name for ends in passes for op in ends}
        for op in body:
            if op.name not in changing:
                yield op
                continue
            waits = (*op.after_previous, BUFFER) if op is passes[0][0] else op.after_previous
            yield dataclasses.replace(op, writes=(*op.writes, *whole), after_previous=waits)
            if op is passes[-1][1]:
                yield dataclasses.replace(message, after=(op.name,))

    return with_bodies(plan, edited)


def _bodies(role: Role) -> Iterator[Body]:
    yield role.body
    yield from (op.body for op in operations(role.body) if hasattr(op, "body"))


def _ends_of_each_forward(body: Body) -> Iterator[tuple[Need, Need]]:
    """The first need of each pass, from which on forward changes them, and the last, whose end is that of forward."""
    needs: list[Need] = []
    for op in body:
        if isinstance(op, Need):
            needs.append(op)
        elif needs and op.verb == "ready":
            yield needs[0], needs[-1]
            needs = []

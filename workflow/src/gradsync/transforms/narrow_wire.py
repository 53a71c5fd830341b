"""A narrow wire: gradients travel in a narrower type than they are computed in.

Each message of gradients is cast before it is sent and cast back afterwards, on its own lane. It is divided by the
number of its ranks before, as a sum over them may leave the range of the narrower type; updates no longer divide.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from gradsync.errors import InputError
from gradsync.kernels import FLOATS
from gradsync.plan import BYTES, Buffer, Collective, Local, Plan, Ref, Role
from gradsync.transforms._edits import (
    Body,
    named,
    operations,
    rescaled,
    waiting,
    weighs_gradients,
    with_bodies,
    with_buffer,
)

TRANSFORM = "a narrow wire"
SUMS = ("all_reduce", "reduce_scatter")
BUFFER = "wire"


def narrow(plan: Plan, wire: str) -> Plan:
    """The plan with gradients that travel as type `wire`; if that is their own, it is as it was.

    Raises InputError for a type that is not of floating point, and for a plan whose gradients don't travel in sums, or
    travel twice.
    """
    if wire not in FLOATS:
        raise InputError(f"wire {wire!r}: gradients travel in one of the types {', '.join(FLOATS)}")
    holding = plan.holding("gradient")
    if holding is None:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan with gradients")
    gradient = plan.buffer[holding]
    if gradient.dtype == wire:
        return plan
    if gradient.dtype == BYTES:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs gradients of a known type, not bytes")
    plan = with_buffer(plan, Buffer(BUFFER, gradient.elements, wire), TRANSFORM)
    messages = {role.name: _messages(plan, role, gradient.name) for role in plan.roles}
    sizes = {plan.group_size(op) for ops in messages.values() for op in ops.values()}
    if len(sizes) != 1:
        raise InputError(
            f"plan {plan.name!r}: {TRANSFORM} needs sums of gradients over one number of ranks; "
            + (f"it has sums over {', '.join(map(str, sorted(sizes)))}" if sizes else "it has no such message")
        )
    (members,) = sizes

    def edited(role: Role, body: Body) -> Iterator[Any]:
        of_role = messages[role.name]
        last = {name: _widen(name) for name in of_role}
        for op in body:
            if op.name in of_role:
                yield from _narrowed(op, members)
                continue
            if weighs_gradients(plan, op):
                op = rescaled(plan, op, Fraction(members), TRANSFORM)
            yield waiting(op, last)

    return with_bodies(plan, edited)


def _messages(plan: Plan, role: Role, gradient: str) -> dict[str, Collective]:
    """Name -> message of gradients; raises InputError for one that can't be narrowed."""
    messages: dict[str, Collective] = {}
    end = 0
    of_gradients = [op for op in operations(role.body) if isinstance(op, Collective) and _touches(op, gradient)]
    for op in sorted(of_gradients, key=lambda op: op.writes):
        if op.kind not in SUMS or len(op.writes) != 1 or op.reads != op.writes:
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: {op.name!r} is no sum of one range of gradients")
        if op.writes[0].start < end:
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: gradients of {op.name!r} travel in another message too")
        end = op.writes[0].stop
        messages[op.name] = op
    return messages


def _touches(op: Collective, buffer: str) -> bool:
    return any(ref.buffer == buffer for ref in (*op.reads, *op.writes))


def _narrowed(message: Collective, members: int) -> Iterator[Any]:
    """The message between two casts; it waits for nothing but the first, which waits for all that it waited for.

    So it waits for other messages only until these have travelled, not until they are cast back.
    """
    gradient = message.writes[0]
    wire = Ref(BUFFER, *gradient[1:])
    # of a sum that is scattered a rank has its own piece alone
    mine = (*gradient.mine, message.over) if message.kind == "reduce_scatter" else gradient.mine
    yield Local(
        name=named("narrow", message.name),
        lane=message.lane,
        after=message.after,
        after_previous=message.after_previous,
        kernel="cast",
        arguments={"scale": 1.0 / members},
        reads=(gradient,),
        writes=(wire,),
    )
    yield dataclasses.replace(message, after=(), after_previous=(), reads=(wire,), writes=(wire,))
    yield Local(
        name=_widen(message.name),
        lane=message.lane,
        kernel="cast",
        arguments={"scale": 1.0},
        reads=(wire._replace(mine=mine),),
        writes=(gradient._replace(mine=mine),),
    )


def _widen(message: str) -> str:
    return named("widen", message)

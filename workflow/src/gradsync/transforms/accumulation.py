"""Gradient accumulation: a step of several micro-batches, of which the last alone is sent.

The passes of all micro-batches but the last only add to the gradient, on their own ranks, so that what is sent overlaps
with the last backward alone. Updates take the mean over micro-batches.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from gradsync.errors import InputError
from gradsync.plan import Need, Plan, Ready, Ref, Role
from gradsync.transforms._edits import Body, computes, rescaled, weighs_gradients, with_bodies

TRANSFORM = "gradient accumulation"


def accumulate(plan: Plan, micro_batches: int) -> Plan:
    """The plan with so many micro-batches per step; with one it is as it was.

    Raises InputError for less than one, and for a plan that accumulates already or has nothing to accumulate.
    """
    if micro_batches < 1:
        raise InputError(f"accumulate {micro_batches}: a step has at least 1 micro-batch")
    if micro_batches == 1:
        return plan
    if plan.passes == 0:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs a plan that computes gradients")

    def edited(role: Role, body: Body) -> Iterator[Any]:
        mean = Fraction(1, micro_batches)
        body = tuple(rescaled(plan, op, mean, TRANSFORM) if weighs_gradients(plan, op) else op for op in body)
        if not computes(body):
            yield from body
            return
        if any(isinstance(op, Ready) and (op.adds or op.tensor is None) for op in body):
            problem = f"steps of role {role.name!r} have several micro-batches already"
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: {problem}")
        forward = [op for op in body if isinstance(op, Need)]
        for op in body:
            if forward and op is forward[0]:
                yield from _earlier_passes(plan, forward, micro_batches - 1)
            match op:
                case Need():  # the first pass has waited already
                    yield dataclasses.replace(op, after=(), after_previous=())
                case Ready():
                    yield dataclasses.replace(op, adds=True)
                case _:
                    yield op

    return with_bodies(plan, edited)


def _earlier_passes(plan: Plan, forward: list[Need], count: int) -> Iterator[Need | Ready]:
    """Forward and backward of so many micro-batches of which nothing is sent; the first begins the sum."""
    parameter, gradient = _whole(plan, "parameter"), _whole(plan, "gradient")
    for number in range(count):
        for need in forward:
            name = f"{need.name}{number}" if need.layer is None else f"{need.name}.{number}"
            if number == 0:
                yield dataclasses.replace(need, name=name)
            else:
                yield dataclasses.replace(need, name=name, after=(), after_previous=())
        yield Ready(name=f"backward{number}", tensor=None, adds=number > 0, reads=parameter, writes=gradient)


def _whole(plan: Plan, role: str) -> tuple[Ref, ...]:
    name = plan.holding(role)
    return () if name is None else (Ref(name, 0, plan.elements),)

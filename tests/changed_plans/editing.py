"""What changes of plans have in common: one role's operations edited, an operation or a range chosen."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from changed_plans.bodies import body_of, with_body
from gradsync.collectives import POSTCONDITION
from gradsync.plan import WORLD, Plan, Ref, Role

Change = Callable[[Plan, random.Random], Plan]
LANES = ("network", "lane0", "lane1", "serve", "compute", "other", "network2")
KINDS = POSTCONDITION
ROLES = ("gradient", "parameter", "momentum", "residual", "centre", "statistics", "scaler", "scratch", "state")


def edited(plan: Plan, chance: random.Random, edit: Callable[[list[Any]], None]) -> Plan:
    """Edit one role's body; sometimes of one rank of the role alone, or of every role that has as many operations."""
    number = chance.randrange(len(plan.roles))
    role = plan.roles[number]
    roles = list(plan.roles)
    if len(role.ranks) > 1 and chance.random() < 0.3:
        alone = chance.choice(role.ranks)
        body = list(body_of(role))
        edit(body)
        rest = tuple(rank for rank in role.ranks if rank != alone)
        roles[number : number + 1] = [
            Role(role.name, rest, role.body),
            with_body(Role(f"{role.name} {alone}", (alone,), role.body), body),
        ]
    else:
        body = list(body_of(role))
        edit(body)
        roles[number] = with_body(role, body)
    return dataclasses.replace(plan, roles=tuple(roles))


def one_of(chance: random.Random, body: list[Any], *kinds: type) -> int | None:
    places = [i for i, op in enumerate(body) if not kinds or isinstance(op, kinds)]
    return chance.choice(places) if places else None


def some_ref(plan: Plan, chance: random.Random) -> Ref:
    buffer = chance.choice(plan.buffers)
    if chance.random() < 0.4 and plan.tensors:
        tensor = chance.choice(plan.tensors)
        if tensor.stop <= buffer.elements:
            return Ref(buffer.name, tensor.start, tensor.stop)
    if chance.random() < 0.5:
        return Ref(buffer.name, 0, buffer.elements)
    start = chance.randint(0, buffer.elements)
    return Ref(buffer.name, start, chance.randint(start, buffer.elements), (WORLD,) if chance.random() < 0.1 else ())

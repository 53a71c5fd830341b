"""Buffers, tensors, ranks and repeats of a plan changed."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from changed_plans.editing import ROLES
from gradsync.plan import DTYPE_BYTES, WORLD, Plan, Repeat, Role, Tensor


def buffers(plan: Plan, chance: random.Random) -> Plan:
    """A buffer of another type, length, role, name, or for all ranks."""
    new = list(plan.buffers)
    i = chance.randrange(len(new))
    buffer = new[i]
    new[i] = chance.choice(
        (
            dataclasses.replace(buffer, dtype=chance.choice(list(DTYPE_BYTES))),
            dataclasses.replace(buffer, dtype=chance.choice(("float32", "float64"))),
            dataclasses.replace(buffer, elements=buffer.elements + chance.choice((-1, 1, 3, -buffer.elements))),
            dataclasses.replace(buffer, shared=not buffer.shared),
            dataclasses.replace(buffer, role=chance.choice(ROLES)),  # type: ignore[arg-type]
            dataclasses.replace(buffer, name=chance.choice((f"{buffer.name}x", chance.choice(new).name))),
        )
    )
    return dataclasses.replace(plan, buffers=tuple(new))


def shards(plan: Plan, chance: random.Random) -> Plan:
    """A buffer that ranks have whole, or pieces of; with other parts, or pieces over other axes."""
    new = list(plan.buffers)
    i = chance.choice([i for i, each in enumerate(new) if each.mine] or range(len(new)))
    buffer = new[i]
    stops = tuple(tensor.stop for tensor in plan.tensors if tensor.stop < buffer.elements)
    ends = buffer.ends or (*stops, buffer.elements)
    place = chance.randrange(len(ends))
    shifted = (*ends[:place], ends[place] + chance.choice((-1, 1)), *ends[place + 1 :])
    mine = buffer.mine or (WORLD,)
    new[i] = chance.choice(
        (
            dataclasses.replace(buffer, mine=(), ends=()),
            dataclasses.replace(buffer, mine=mine, ends=ends),
            dataclasses.replace(buffer, mine=mine, ends=(buffer.elements,)),
            dataclasses.replace(buffer, mine=mine, ends=(*ends[:place], *ends[place + 1 :])),
            dataclasses.replace(buffer, mine=mine, ends=shifted),
            dataclasses.replace(buffer, mine=chance.choice(((), ("node",), (*mine, WORLD))), ends=ends),
            dataclasses.replace(buffer, mine=mine, ends=ends, shared=True),
        )
    )
    return dataclasses.replace(plan, buffers=tuple(new))


def tensors(plan: Plan, chance: random.Random) -> Plan:
    """A tensor of another name, or with another border to its neighbour."""
    new = list(plan.tensors)
    if not new:
        return dataclasses.replace(plan, tensors=(Tensor("new", 0, 1),))
    i = chance.randrange(len(new))
    if chance.random() < 0.4:
        new[i] = dataclasses.replace(new[i], name=chance.choice((f"{new[i].name}x", chance.choice(new).name)))
    elif i + 1 < len(new):
        border = new[i].stop + chance.choice((-1, 1))
        new[i : i + 2] = [
            dataclasses.replace(new[i], stop=border),
            dataclasses.replace(new[i + 1], start=border),
        ]
    return dataclasses.replace(plan, tensors=tuple(new))


def ranks(plan: Plan, chance: random.Random) -> Plan:
    """Ranks that change their role, or a number of ranks that is another."""
    roles = list(plan.roles)
    if chance.random() < 0.2:
        return dataclasses.replace(plan, ranks=plan.ranks + chance.choice((-1, 1)))
    if len(roles) > 1:
        i, j = chance.sample(range(len(roles)), 2)
        roles[i], roles[j] = (
            dataclasses.replace(roles[i], ranks=roles[j].ranks),
            dataclasses.replace(roles[j], ranks=roles[i].ranks),
        )
    return dataclasses.replace(plan, roles=tuple(roles))


def repeat(plan: Plan, chance: random.Random) -> Plan:
    """A repeat of another count, or around what had none."""
    roles = list(plan.roles)
    i = chance.randrange(len(roles))
    first = roles[i].body[0] if roles[i].body else None
    if isinstance(first, Repeat):
        new: Any = dataclasses.replace(first, count=chance.choice((None, 0, 1, 2, 3, -1)))
        body: tuple[Any, ...] = (*((new,) if chance.random() < 0.8 else first.body), *roles[i].body[1:])
    else:
        body = (Repeat(name="again", body=roles[i].body, count=chance.choice((None, 1, 2))),)
    roles[i] = Role(roles[i].name, roles[i].ranks, body)
    return dataclasses.replace(plan, roles=tuple(roles))

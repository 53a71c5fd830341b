"""Changes on both ends of a message, of all members of a collective, or in all roles: what agrees, and is wrong."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from changed_plans.bodies import body_of, with_body
from gradsync import collectives
from gradsync.collectives import POSTCONDITION
from gradsync.plan import DTYPE_BYTES, KEYED, Collective, Local, Plan, Recv, RecvAny, Ref, Reply, Send, SharedAdd

Change = Callable[[Plan, random.Random], Plan]
Edit = Callable[[Any], Any]
TRANSFERS = (Send, Recv, RecvAny, Reply)
KINDS = POSTCONDITION
NUMBERS = (0.0, 1e-300, 1e-30, 1e-8, 1.0, 65504.0, 65505.0, 1e10, 1e38, 1e39, 1e300)


def everywhere(plan: Plan, edit: Callable[[list[Any]], None]) -> Plan:
    """The same edit of the operations of every role."""
    roles = []
    for role in plan.roles:
        body = list(body_of(role))
        edit(body)
        roles.append(with_body(role, body))
    return dataclasses.replace(plan, roles=tuple(roles))


def each_of(plan: Plan, chosen: Callable[[Any], bool], edit: Edit) -> Plan:
    """`edit` of all operations that are `chosen`."""

    def change(body: list[Any]) -> None:
        body[:] = [edit(op) if chosen(op) else op for op in body]

    return everywhere(plan, change)


def _some(plan: Plan, chance: random.Random, *kinds: type) -> Any:
    candidates = [op for role in plan.roles for op in body_of(role) if not kinds or isinstance(op, kinds)]
    return chance.choice(candidates) if candidates else None


def line_of(op: Any) -> tuple[str, int, int]:
    """What both ends of a message agree in."""
    return op.channel, getattr(op, "rail", 0), op.tag


def both_ends(plan: Plan, chance: random.Random) -> Plan:
    """All that goes under one channel, rail and tag under another one, which may be taken."""
    one, other = _some(plan, chance, *TRANSFERS), _some(plan, chance, *TRANSFERS)
    if one is None:
        return plan
    key = chance.choice(("channel", "tag", "rail"))
    value = {
        "channel": chance.choice(
            (other.channel, "own", "lane0", *(op.lane for op in (one, other) if op.lane != "compute"))
        ),
        "tag": chance.choice((other.tag, 0, 5, (1 << 24) - 1, 1 << 24)),
        "rail": chance.choice((getattr(other, "rail", 0), 1, 15, 16)),
    }[key]

    def edit(op: Any) -> Any:
        return dataclasses.replace(op, **{key: value}) if hasattr(op, key) else op

    return each_of(plan, lambda op: isinstance(op, TRANSFERS) and line_of(op) == line_of(one), edit)


def all_members(plan: Plan, chance: random.Random) -> Plan:
    """A collective of another kind, algorithm, root, lane or group on all its members."""
    one = _some(plan, chance, Collective)
    if one is None:
        return plan
    kind = chance.choice(list(KINDS))
    values: dict[str, Any] = chance.choice(
        (
            {"kind": kind, "postcondition": KINDS[kind]},
            {"algorithm": chance.choice(("native", *collectives.names()))},
            {
                "algorithm": chance.choice(("native", *collectives.names())),
                "shape": chance.choice(((), (2, 2), (1, 2))),
            },
            {"root": chance.randrange(plan.ranks)},
            {"lane": chance.choice(("network", "lane0", "lane1", "own"))},
            {"ranks": chance.choice(((), tuple(range(plan.ranks)), tuple(range(plan.ranks - 1))))},
        )
    )

    def member(op: Any) -> bool:
        return isinstance(op, Collective) and op.name == one.name

    return each_of(plan, member, lambda op: dataclasses.replace(op, **values))


def _moved(op: Any, start: int, stop: int) -> Any:
    def changed(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
        return tuple(ref._replace(start=ref.start + start, stop=ref.stop + stop) for ref in refs)

    return dataclasses.replace(op, reads=changed(op.reads), writes=changed(op.writes))


def lengths(plan: Plan, chance: random.Random) -> Plan:
    """Both ends of a message, or all members of a collective, of other ranges, all in the same way."""
    one = _some(plan, chance, *TRANSFERS, Collective)
    if one is None:
        return plan
    start, stop = chance.choice(((0, -1), (1, 0), (0, 1), (-1, 0), (1, 1), (-1, -1)))

    def same(op: Any) -> bool:
        if isinstance(one, Collective):
            return bool(op.name == one.name)
        return isinstance(op, TRANSFERS) and line_of(op) == line_of(one)

    return each_of(plan, same, lambda op: _moved(op, start, stop))


def names(plan: Plan, chance: random.Random) -> Plan:
    """An operation of another name in all roles, wherever it is named; the name may be taken, or a made-up one."""
    one, other = _some(plan, chance), _some(plan, chance)
    new = chance.choice((f"{one.name}x", other.name, f"{other.name}.send0.1", f"{other.name}.add0.0", f"{one.name}#0"))

    def renamed(op: Any) -> Any:
        values: dict[str, Any] = {
            key: tuple(new if name == one.name else name for name in getattr(op, key))
            for key in ("after", "after_previous")
        }
        if op.name == one.name:
            values["name"] = new
        if isinstance(op, Reply) and op.to == one.name:
            values["to"] = new
        return dataclasses.replace(op, **values)

    return each_of(plan, lambda op: True, renamed)


def types(plan: Plan, chance: random.Random) -> Plan:
    """All buffers of one type, or all keyed ones, of another type."""
    old, new = chance.choice(plan.buffers).dtype, chance.choice(list(DTYPE_BYTES))
    keyed = chance.random() < 0.3
    buffers = tuple(
        dataclasses.replace(buffer, dtype=new) if (buffer.role in KEYED if keyed else buffer.dtype == old) else buffer
        for buffer in plan.buffers
    )
    return dataclasses.replace(plan, buffers=buffers)


def without(plan: Plan, chance: random.Random) -> Plan:
    """Both ends of a message, a collective of all members, or one operation of every role gone; nobody waits for it."""
    one = _some(plan, chance)

    def same(op: Any) -> bool:
        if isinstance(one, TRANSFERS) and chance.random() < 0.9:
            return isinstance(op, TRANSFERS) and line_of(op) == line_of(one)
        return bool(op.name == one.name)

    gone: dict[str, Any] = {}

    def change(body: list[Any]) -> None:
        kept = []
        for op in body:
            if same(op):
                gone[op.name] = op
            else:
                kept.append(op)
        body[:] = [_waiting_without(op, gone) for op in kept]

    return everywhere(plan, change)


def _waiting_without(op: Any, gone: dict[str, Any]) -> Any:
    """It waits for what those that are gone waited for, as far as these are not gone too."""
    values = {}
    for key in ("after", "after_previous"):
        held = [
            new
            for name in getattr(op, key)
            for new in (getattr(gone[name], key) if name in gone else (name,))
            if new not in gone
        ]
        values[key] = tuple(dict.fromkeys(held))
    return dataclasses.replace(op, **values)


def twice(plan: Plan, chance: random.Random) -> Plan:
    """Both ends of a message once more, or an operation of every role that has it."""
    one = _some(plan, chance)
    wait = chance.random() < 0.7

    def same(op: Any) -> bool:
        if isinstance(one, TRANSFERS):
            return isinstance(op, TRANSFERS) and line_of(op) == line_of(one)
        return bool(op.name == one.name)

    def change(body: list[Any]) -> None:
        doubled = {op.name for op in body if same(op)}
        new: list[Any] = []
        for op in body:
            if wait:
                more = {
                    key: (*getattr(op, key), *(f"{name}'" for name in getattr(op, key) if name in doubled))
                    for key in ("after", "after_previous")
                }
                op = dataclasses.replace(op, **more)
            new.append(op)
            if op.name in doubled:
                new.append(dataclasses.replace(op, name=f"{op.name}'"))
        body[:] = new

    return everywhere(plan, change)


def order(plan: Plan, chance: random.Random) -> Plan:
    """Two neighbours change places in every role that has both."""
    role = chance.choice(plan.roles)
    body = body_of(role)
    if len(body) < 2:
        return plan
    i = chance.randrange(len(body) - 1)
    first, second = body[i].name, body[i + 1].name

    def change(operations: list[Any]) -> None:
        at = {op.name: place for place, op in enumerate(operations)}
        if first in at and second in at:
            one, other = at[first], at[second]
            operations[one], operations[other] = operations[other], operations[one]

    return everywhere(plan, change)


def waits(plan: Plan, chance: random.Random) -> Plan:
    """In every role, what one operation waits for it waits for a turn later, or not at all."""
    one = _some(plan, chance)
    how = chance.randrange(3)

    def edit(op: Any) -> Any:
        if how == 0:
            return dataclasses.replace(op, after=(), after_previous=op.after)
        if how == 1:
            return dataclasses.replace(op, after=())
        return dataclasses.replace(op, after_previous=())

    return each_of(plan, lambda op: op.name == one.name, edit)


def buffer_instead(plan: Plan, chance: random.Random) -> Plan:
    """One buffer in the place of another, for all operations of one name, or for all but those that compute."""
    one, (old, new) = _some(plan, chance), (chance.choice(plan.buffers).name, chance.choice(plan.buffers).name)
    alone = chance.random() < 0.5

    def edit(op: Any) -> Any:
        def changed(refs: tuple[Ref, ...]) -> tuple[Ref, ...]:
            return tuple(ref._replace(buffer=new) if ref.buffer == old else ref for ref in refs)

        return dataclasses.replace(op, reads=changed(op.reads), writes=changed(op.writes))

    return each_of(plan, lambda op: op.name == one.name if alone else op.verb not in ("need", "ready"), edit)


def numbers(plan: Plan, chance: random.Random) -> Plan:
    """An argument of an operation, in all roles, at the border of what numbers can be."""
    one = _some(plan, chance, Local, SharedAdd)
    if one is None:
        return plan
    value = chance.choice(NUMBERS) * chance.choice((1, 1, 1, -1))

    def edit(op: Any) -> Any:
        if isinstance(op, SharedAdd):
            return dataclasses.replace(op, scale=value)
        known = list(op.arguments) or ["scale", "value"]
        return dataclasses.replace(op, arguments={**op.arguments, chance.choice(known): value})

    return each_of(plan, lambda op: isinstance(op, Local | SharedAdd) and op.name == one.name, edit)


CHANGES: dict[str, Change] = {
    "both ends": both_ends,
    "both ends again": both_ends,
    "all members": all_members,
    "lengths of both": lengths,
    "name everywhere": names,
    "types of all": types,
    "without both": without,
    "both twice": twice,
    "order everywhere": order,
    "waits everywhere": waits,
    "buffer instead": buffer_instead,
    "arguments, extreme": numbers,
}

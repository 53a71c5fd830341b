"""Repeats: a part of a loop's body that one turn runs several times, spelled out pass by pass.

Inside a repeat, `after_previous` means the previous pass of its body (in the first pass: the last pass of the previous
turn). From outside, the name of a repeated operation means its last pass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync.errors import InputError
from gradsync.limits import MOST_OPERATIONS, MOST_REPEATED
from gradsync.plan.operations import Repeat, Reply

Body = tuple[Any, ...]


def until_stopped(body: Body) -> bool:
    """True if the whole body is one repeat without a count."""
    return len(body) == 1 and isinstance(body[0], Repeat) and body[0].count is None


def spelled_out(body: Body, role: str) -> Body:
    """The operations of one turn (if it is repeated until others stop: of one pass), with every repeat spelled out.

    Raises InputError, which names the role, if a repeat makes no sense or there are too many operations.
    """
    for repeat in (op for op in body if isinstance(op, Repeat)):
        endless = not until_stopped(body) and (repeat.count or 0) < 1
        if endless or not repeat.body or any(isinstance(op, Repeat) for op in repeat.body):
            raise InputError(
                f"plan: role {role!r}, repeat {repeat.name!r}: needs a count of at least 1 unless it is the whole "
                "body of its role, and operations, none of which is another repeat"
            )
    if until_stopped(body):
        return tuple(body[0].body)
    repeated = sum((op.count or 1) * len(op.body) for op in body if isinstance(op, Repeat))
    others = sum(not isinstance(op, Repeat) for op in body)
    if repeated > MOST_REPEATED or repeated + others > MOST_OPERATIONS:
        raise InputError(
            f"plan: role {role!r} has {repeated} operations of repeats and {others} others a turn: at "
            f"most {MOST_REPEATED} of repeats are allowed, and {MOST_OPERATIONS} in all"
        )
    return tuple(_one_by_one(body))


def _one_by_one(body: Body) -> Iterator[Any]:
    last_pass = {  # name inside a repeat -> name of its last pass
        op.name: f"{op.name}#{(repeat.count or 1) - 1}"
        for repeat in body
        if isinstance(repeat, Repeat)
        for op in repeat.body
    }
    for op in body:
        if isinstance(op, Repeat):
            for number in range(op.count or 0):
                yield from _one_pass(op, number, last_pass)
        elif last_pass:
            after = tuple(last_pass.get(name, name) for name in op.after)
            after_previous = tuple(last_pass.get(name, name) for name in op.after_previous)
            yield dataclasses.replace(op, after=after, after_previous=after_previous)
        else:
            yield op


def _one_pass(repeat: Any, number: int, last_pass: dict[str, str]) -> Iterator[Any]:
    inside = {op.name for op in repeat.body}

    def in_pass(names: tuple[str, ...], which: int) -> tuple[str, ...]:
        return tuple(f"{name}#{which}" if name in inside else last_pass.get(name, name) for name in names)

    for op in repeat.body:
        changes: dict[str, Any] = {"name": f"{op.name}#{number}", "after": in_pass(op.after, number)}
        if number:
            changes["after"] += in_pass(op.after_previous, number - 1)
            changes["after_previous"] = ()
        else:
            changes["after_previous"] = in_pass(op.after_previous, repeat.count - 1)
        if isinstance(op, Reply):
            changes["to"] = f"{op.to}#{number}"
        yield dataclasses.replace(op, **changes)

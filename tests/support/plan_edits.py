"""Edits of plans for tests: operations changed, dropped, moved or added in one role."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from gradsync.plan import Buffer, Plan

Edit = Callable[[list[Any]], object]


def changed(plan: Plan, edit: Edit, role: int = 0) -> Plan:
    """The plan with `edit` done to the list of operations of one role."""
    roles = list(plan.roles)
    body = list(roles[role].body)
    edit(body)
    roles[role] = dataclasses.replace(roles[role], body=tuple(body))
    return dataclasses.replace(plan, roles=tuple(roles))


def setting(name: str, /, **values: Any) -> Edit:
    """An edit that changes fields of one operation."""

    def edit(body: list[Any]) -> None:
        index = index_of(body, name)
        body[index] = dataclasses.replace(body[index], **values)

    return edit


def index_of(body: list[Any], name: str) -> int:
    return next(i for i, op in enumerate(body) if op.name == name)


def without(name: str) -> Edit:
    def edit(body: list[Any]) -> None:
        del body[index_of(body, name)]

    return edit


def moved_to_front(name: str) -> Edit:
    def edit(body: list[Any]) -> None:
        body.insert(0, body.pop(index_of(body, name)))

    return edit


def appended(op: Any) -> Edit:
    return lambda body: body.append(op)


def with_buffers(plan: Plan, *more: Buffer) -> Plan:
    return dataclasses.replace(plan, buffers=(*plan.buffers, *more))


def setting_inside(name: str, /, **values: Any) -> Edit:
    """An edit inside the repeat of a server."""

    def edit(body: list[Any]) -> None:
        (repeat,) = body
        inside = list(repeat.body)
        setting(name, **values)(inside)
        body[0] = dataclasses.replace(repeat, body=tuple(inside))

    return edit


def inside(edit: Edit) -> Edit:
    """An edit of the list of operations inside the repeat of a server."""

    def outside(body: list[Any]) -> None:
        (repeat,) = body
        operations = list(repeat.body)
        edit(operations)
        body[0] = dataclasses.replace(repeat, body=tuple(operations))

    return outside

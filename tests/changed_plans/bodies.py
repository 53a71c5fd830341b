"""A role's operations, or those inside its repeat: what changes of plans work on."""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsync.plan import Repeat, Role


def body_of(role: Role) -> tuple[Any, ...]:
    """What a change may touch: operations inside a repeat that is all of the role, else those beside repeats."""
    first = role.body[0] if role.body else None
    if isinstance(first, Repeat) and len(role.body) == 1:
        return first.body
    return tuple(op for op in role.body if not isinstance(op, Repeat))


def with_body(role: Role, body: list[Any]) -> Role:
    """The role with these operations in the place of those."""
    first = role.body[0] if role.body else None
    if isinstance(first, Repeat) and len(role.body) == 1:
        return Role(role.name, role.ranks, (dataclasses.replace(first, body=tuple(body)),))
    repeats = [op for op in role.body if isinstance(op, Repeat)]
    return Role(role.name, role.ranks, (*repeats, *body))

"""The same plan with fewer passes of its repeats: what is wrong in many is wrong in few, and is found sooner.

If all ranks do the same, and a repeat only computes, its passes are alike but for the first and the last. So three
stand for all of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from gradsync.plan import Local, Need, Plan, Ready, Repeat

FEW_PASSES = 3  # the first, the last, and one between them


def on_few_passes(plan: Plan) -> Plan:
    """The plan with as few passes as can stand for all; itself if all of them must be followed."""
    if not plan.symmetric:
        return plan
    (role,) = plan.roles
    if not _by_name(role.body):
        return plan
    body = tuple(
        dataclasses.replace(each, count=FEW_PASSES) if isinstance(each, Repeat) and _is_long(each) else each
        for each in role.body
    )
    return dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),))


def _is_long(repeat: Repeat) -> bool:
    computes = all(isinstance(op, Need | Ready | Local) for op in repeat.body)
    return computes and repeat.count is not None and repeat.count > FEW_PASSES


def _by_name(body: tuple[Any, ...]) -> bool:
    """Whether no operation waits for a pass of a repeat by its number."""
    operations: list[Any] = [op for each in body for op in (each.body if isinstance(each, Repeat) else (each,))]
    names = {op.name for op in operations}
    return all({*op.after, *op.after_previous} <= names for op in operations)

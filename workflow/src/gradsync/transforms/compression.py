"""Compression: of each message of gradients some elements, or a code, travel on the way of a sparse collective.

What takes the sum takes a sparse sum. A message with fewer elements than it is cut into slices travels as it is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from gradsync import sparse
from gradsync.collectives import ALL_REDUCE, NATIVE
from gradsync.errors import InputError
from gradsync.plan import BYTES, WORLD, Buffer, Collective, Local, Plan, Ref, Role
from gradsync.sparse import MOST_ELEMENTS, Compression
from gradsync.transforms import _sparse_messages as messages
from gradsync.transforms._edits import Body, operations, waiting, with_bodies, with_buffer

TRANSFORM = "compression"


def compress(plan: Plan, compression: Compression) -> Plan:
    """The plan whose messages are sparse.

    Raises InputError for a plan whose gradients are not summed by all-reduces of the backend's own over all of its
    ranks, each of one range that no other message has, or are of an unknown type.
    """
    sparse.refuse(compression.compressor, compression.density, dict(compression.options))
    way = compression.way
    holding = plan.holding("gradient")
    if holding is None or plan.buffer[holding].dtype == BYTES:
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs gradients of a known type")
    if plan.axes or plan.ranks != way.ranks:
        problem = f"a plan without axes, of {way.ranks} rank(s)"
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs {problem}")
    if compression.feedback and plan.holding("scaler") is not None:
        problem = "a plan without a loss scale, or no error feedback: residuals keep gradients of earlier loss scales"
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs {problem}")
    gradient = plan.buffer[holding]
    of_role = {role.name: _messages(plan, role, holding) for role in plan.roles}
    if not any(of_role.values()):
        raise InputError(f"plan {plan.name!r}: {TRANSFORM} needs sums of gradients; it has no such message")
    starts, buffers = _laid_out(of_role, compression, gradient.dtype)
    if starts and compression.feedback:
        buffers.append(Buffer(messages.RESIDUAL, gradient.elements, gradient.dtype, role="residual"))
    for buffer in buffers:
        plan = with_buffer(plan, buffer, TRANSFORM)

    def edited(role: Role, body: Body) -> Iterator[Any]:
        ours = {name: op for name, op in of_role[role.name].items() if (role.name, name) in starts}
        last = {name: messages.last(name, way) for name in ours}
        for op in body:
            if op.name in ours:
                parts = messages.carried(op, compression, starts[role.name, op.name])
            else:
                parts = iter((_of_sparse_sum(op),))
            yield from (waiting(part, last) for part in parts)

    return dataclasses.replace(with_bodies(plan, edited), axes=way.axes)


def _messages(plan: Plan, role: Role, gradient: str) -> dict[str, Collective]:
    """Name -> message of gradients; raises InputError for one that can't be made sparse."""
    found: dict[str, Collective] = {}
    end = 0
    of_gradients = [
        op
        for op in operations(role.body)
        if op.verb not in ("ready", "local", "repeat")
        and any(ref.buffer == gradient for ref in (*op.reads, *op.writes))
    ]
    for op in sorted(of_gradients, key=lambda op: op.writes):
        summed = isinstance(op, Collective) and op.kind == ALL_REDUCE and op.reads == op.writes and len(op.writes) == 1
        if not summed or op.algorithm != NATIVE or op.over != WORLD or op.ranks or op.writes[0].mine:
            raise InputError(
                f"plan {plan.name!r}: {TRANSFORM}: {op.name!r} is no all-reduce of the backend's own of one range of "
                "gradients over all ranks: choose another update, or the collective native"
            )
        if op.writes[0].start < end:
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: gradients of {op.name!r} travel in another message too")
        end = op.writes[0].stop
        if end - op.writes[0].start > MOST_ELEMENTS:
            raise InputError(f"plan {plan.name!r}: {TRANSFORM}: {op.name!r} has more than {MOST_ELEMENTS} elements")
        found[op.name] = op
    return found


def _laid_out(
    of_role: dict[str, dict[str, Collective]], compression: Compression, dtype: str
) -> tuple[dict[tuple[str, str], tuple[Ref, ...]], list[Buffer]]:
    """(role, message) -> where what all ranks send of it lies, whole; and the buffers that it lies in.

    Messages of equal name are one collective of several roles, and lie in the same place.
    """
    of_message: dict[str, tuple[Ref, ...]] = {}
    starts: dict[tuple[str, str], tuple[Ref, ...]] = {}
    lengths: dict[tuple[str, str], int] = {}  # (buffer, type) -> elements
    for role, ops in of_role.items():
        for name, op in ops.items():
            sent = compression.sent(op.writes[0].stop - op.writes[0].start)
            if not all(each.elements for each in sent):
                continue
            if name not in of_message:
                refs = []
                for each in sent:
                    key = each.buffer, each.dtype or dtype
                    start = lengths.get(key, 0)
                    lengths[key] = start + int(each.elements) * compression.way.between.size
                    refs.append(Ref(each.buffer, start, lengths[key]))
                of_message[name] = tuple(refs)
            starts[role, name] = of_message[name]
    return starts, [Buffer(name, length, kind) for (name, kind), length in lengths.items()]


def _of_sparse_sum(op: Any) -> Any:
    """What requires a sum of gradients, requires a sparse one."""
    if isinstance(op, Local) and op.requires == "sum":
        return dataclasses.replace(op, requires="sparse_sum")
    return op

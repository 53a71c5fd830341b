"""What transforms have in common: bodies of a plan, the operations in them that apply gradients, their scale."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from gradsync.collectives import POSTCONDITION
from gradsync.errors import InputError
from gradsync.kernels import KERNELS
from gradsync.plan import COMPUTE, Buffer, Collective, Kind, Local, Plan, Ready, Ref, Repeat, Role, SharedAdd

UPDATED = ("parameter", "centre")  # roles of buffers that gradients are applied to
LARGEST_DENOMINATOR = 1 << 40

Body = tuple[Any, ...]


def with_bodies(plan: Plan, edit: Callable[[Role, Body], Iterable[Any]]) -> Plan:
    """The plan with what `edit` makes of the body of each role and of each repeat in it."""

    def edited(role: Role, body: Body) -> Body:
        inside = (dataclasses.replace(op, body=edited(role, op.body)) if isinstance(op, Repeat) else op for op in body)
        return tuple(edit(role, tuple(inside)))

    return dataclasses.replace(
        plan, roles=tuple(dataclasses.replace(role, body=edited(role, role.body)) for role in plan.roles)
    )


def operations(body: Sequence[Any]) -> Iterator[Any]:
    """All operations of a body, those inside repeats too, each once."""
    for op in body:
        yield op
        if isinstance(op, Repeat):
            yield from operations(op.body)


def computes(body: Body) -> bool:
    """Whether a body, without the repeats in it, makes gradients."""
    return any(isinstance(op, Ready) for op in body)


def applies_gradients(plan: Plan, op: Any) -> bool:
    """Whether an operation changes parameters, or a centre, by gradients."""
    if not isinstance(op, Local | SharedAdd) or not any(plan.buffer[ref.buffer].role in UPDATED for ref in op.writes):
        return False
    reads_gradient = any(plan.buffer[ref.buffer].role == "gradient" for ref in op.reads)
    return isinstance(op, SharedAdd) or reads_gradient or "scale" in KERNELS[op.kernel].arguments


def weighs_gradients(plan: Plan, op: Any) -> bool:
    """Whether an operation applies gradients, or makes the ratios that an update of whole tensors will take."""
    ratios = isinstance(op, Local) and op.requires is not None and "scale" in KERNELS[op.kernel].arguments
    return ratios or applies_gradients(plan, op)


def the_update(plan: Plan, role: Role, body: Body, transform: str) -> Local | None:
    """The one operation of a body that applies gradients, all of them at once; None if none does.

    Raises InputError, which names the transform, if there are several, or one of a part.
    """
    updates = [op for op in body if applies_gradients(plan, op)]
    if not updates:
        return None
    if not at_once(plan, updates):
        raise InputError(
            f"plan {plan.name!r}: {transform} needs one local operation that applies all gradients; role {role.name!r} "
            f"has: {', '.join(op.name for op in updates)}"
        )
    (update,) = updates
    return update


def at_once(plan: Plan, updates: Sequence[Any]) -> bool:
    """Whether these are one local operation that applies all gradients."""
    if len(updates) != 1:
        return False
    (update,) = updates
    return isinstance(update, Local) and _whole(plan, update) and update.lane == COMPUTE


def _whole(plan: Plan, update: Local) -> bool:
    """Whether it reads all gradients, in one range or tensor by tensor."""
    read = [ref for ref in update.reads if plan.buffer[ref.buffer].role == "gradient"] or [*update.reads[:1]]
    ends = [0, *(ref.stop for ref in read)]
    return [(ref.start, ref.mine) for ref in read] == [(end, ()) for end in ends[:-1]] and ends[-1] == plan.elements


def rescaled(plan: Plan, op: Any, factor: Fraction, transform: str) -> Any:
    """An operation that applies gradients, with its scale multiplied by `factor`.

    Raises InputError, which names the transform, if the operation has no scale.
    """
    if isinstance(op, SharedAdd):
        return dataclasses.replace(op, scale=_product(op.scale, factor))
    known = KERNELS[op.kernel].arguments
    if "scale" not in known:
        raise InputError(
            f"plan {plan.name!r}: {transform} changes the weight of gradients, and {op.name!r} applies them by kernel "
            f"{op.kernel!r}, which has no scale"
        )
    scale = op.arguments.get("scale", known["scale"].default)
    return dataclasses.replace(op, arguments={**op.arguments, "scale": _product(scale, factor)})


def _product(scale: float, factor: Fraction) -> float:
    """Rounded once, if `scale` is a fraction of small numbers: 1/49, which is rounded, times 49 is 1."""
    short = Fraction(scale).limit_denominator(LARGEST_DENOMINATOR)
    return float((short if float(short) == scale else Fraction(scale)) * factor)


def named(verb: str, message: str) -> str:
    """The name of a part of a message: `encode3` of `message3`, `encode:sum` of `sum`."""
    number = message.removeprefix("message")
    return f"{verb}{number}" if number.isdigit() else f"{verb}:{message}"


def over(axis: str, message: Collective, verb: str, kind: Kind, ref: Ref) -> Collective:
    """A part of a message: a collective of the backend's own over an axis, on the lane of the message."""
    return dataclasses.replace(
        message,
        name=named(verb, message.name),
        after=(),
        after_previous=(),
        kind=kind,
        postcondition=POSTCONDITION[kind],
        over=axis,
        reads=(ref,),
        writes=(ref,),
    )


def waiting(op: Any, last: Mapping[str, str]) -> Any:
    """The operation, which waits for the last part of each message that it waited for (message -> that part)."""
    changes = {
        key: tuple(last.get(name, name) for name in getattr(op, key))
        for key in ("after", "after_previous")
        if not last.keys().isdisjoint(getattr(op, key, ()))
    }
    return dataclasses.replace(op, **changes) if changes else op


def with_buffer(plan: Plan, buffer: Buffer, transform: str) -> Plan:
    """The plan with one more buffer; raises InputError, which names the transform, if it has one of that name."""
    if buffer.name in plan.buffer:
        raise InputError(f"plan {plan.name!r}: {transform} needs a buffer {buffer.name!r}, which the plan has already")
    return dataclasses.replace(plan, buffers=(*plan.buffers, buffer))

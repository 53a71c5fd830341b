"""Changes of a plan at random: what somebody who writes a scheme may get wrong."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from changed_plans import coordinated
from changed_plans.bodies import body_of, with_body
from gradsync import collectives
from gradsync.kernels import KERNELS
from gradsync.plan import (
    DTYPE_BYTES,
    Collective,
    Local,
    Need,
    Plan,
    Ready,
    Recv,
    RecvAny,
    Ref,
    Repeat,
    Reply,
    Role,
    Send,
    SharedAdd,
    SharedRead,
    Tensor,
)

LANES = ("network", "lane0", "lane1", "serve", "compute", "other", "network2")
KINDS = {"all_reduce": "sum", "reduce_scatter": "shard", "all_gather": "gather", "broadcast": "copy"}
ROLES = ("gradient", "parameter", "momentum", "residual", "centre", "statistics", "scaler", "scratch", "state")

Change = Callable[[Plan, random.Random], Plan]


def changed(plan: Plan, chance: random.Random, most: int = 4) -> tuple[Plan, list[str]]:
    """The plan after one change, or as often after two to `most`, and their names."""
    names = []
    for _ in range(1 if chance.random() < 0.5 else chance.randint(2, most)):
        name = chance.choice(list(CHANGES))
        names.append(name)
        plan = CHANGES[name](plan, chance)
    return plan, names


def _edit(plan: Plan, chance: random.Random, edit: Callable[[list[Any]], None]) -> Plan:
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


def _one(chance: random.Random, body: list[Any], *kinds: type) -> int | None:
    places = [i for i, op in enumerate(body) if not kinds or isinstance(op, kinds)]
    return chance.choice(places) if places else None


def _set(*kinds: type, **how: Callable[[random.Random, Any, Plan], Any]) -> Change:
    """Sets fields of one operation of these kinds."""

    def change(plan: Plan, chance: random.Random) -> Plan:
        def edit(body: list[Any]) -> None:
            i = _one(chance, body, *kinds)
            if i is not None:
                op = body[i]
                values = {key: new(chance, op, plan) for key, new in how.items() if hasattr(op, key)}
                body[i] = dataclasses.replace(op, **values)

        return _edit(plan, chance, edit)

    return change


# Operations


def drop(plan: Plan, chance: random.Random) -> Plan:
    """Without one operation; those that waited for it wait for nothing, or for what it waited for."""

    def edit(body: list[Any]) -> None:
        i = _one(chance, body)
        if i is None or len(body) == 1:
            return
        gone = body.pop(i)
        follow = chance.random() < 0.7
        for j, op in enumerate(body):
            for key in ("after", "after_previous"):
                names = getattr(op, key, ())
                if gone.name in names:
                    instead = getattr(gone, key, ()) if follow else ()
                    kept = tuple(
                        dict.fromkeys(n for name in names for n in (instead if name == gone.name else (name,)))
                    )
                    body[j] = op = dataclasses.replace(op, **{key: kept})

    return _edit(plan, chance, edit)


def double(plan: Plan, chance: random.Random) -> Plan:
    """One operation once more, next to itself or anywhere after; those that waited for it may wait for both."""

    def edit(body: list[Any]) -> None:
        i = _one(chance, body)
        if i is None:
            return
        again = dataclasses.replace(body[i], name=f"{body[i].name}'")
        if chance.random() < 0.7:
            for j, op in enumerate(body):
                for key in ("after", "after_previous"):
                    if body[i].name in getattr(op, key, ()):
                        op = dataclasses.replace(op, **{key: (*getattr(op, key), again.name)})
                        body[j] = op
        body.insert(i + 1 if chance.random() < 0.6 else chance.randint(i + 1, len(body)), again)

    return _edit(plan, chance, edit)


def move(plan: Plan, chance: random.Random) -> Plan:
    """One operation elsewhere."""

    def edit(body: list[Any]) -> None:
        i = _one(chance, body)
        if i is not None:
            op = body.pop(i)
            near = max(0, min(len(body), i + chance.choice((-2, -1, 1, 2))))
            body.insert(near if chance.random() < 0.6 else chance.randint(0, len(body)), op)

    return _edit(plan, chance, edit)


def swap(plan: Plan, chance: random.Random) -> Plan:
    """Two operations in each other's place."""

    def edit(body: list[Any]) -> None:
        i, j = _one(chance, body), _one(chance, body)
        if i is not None and j is not None:
            body[i], body[j] = body[j], body[i]

    return _edit(plan, chance, edit)


def rename(plan: Plan, chance: random.Random) -> Plan:
    """Another name, for those that wait for it too or not."""

    def edit(body: list[Any]) -> None:
        i = _one(chance, body)
        if i is None:
            return
        old = body[i].name
        new = chance.choice((f"{old}x", chance.choice(body).name))
        body[i] = dataclasses.replace(body[i], name=new)
        if chance.random() < 0.7:
            for j, op in enumerate(body):
                for key in ("after", "after_previous"):
                    names = getattr(op, key, ())
                    if old in names:
                        renamed = tuple(new if name == old else name for name in names)
                        body[j] = op = dataclasses.replace(op, **{key: renamed})

    return _edit(plan, chance, edit)


def insert(plan: Plan, chance: random.Random) -> Plan:
    """An operation of any kind on any ranges."""

    def edit(body: list[Any]) -> None:
        known = [op.name for op in body]
        where = chance.randint(0, len(body))
        some = tuple(chance.sample(known[:where], min(where, chance.randint(0, 2))))
        before = tuple(chance.sample(known, min(len(known), chance.randint(0, 1))))
        ref, other = _some_ref(plan, chance), _some_ref(plan, chance)
        if chance.random() < 0.5:
            other = Ref(other.buffer, ref.start, ref.stop)
        lane = chance.choice(("network", chance.choice(LANES)))
        base: dict[str, Any] = {"name": f"new{chance.randrange(99)}", "after": some, "after_previous": before}
        rank = chance.randrange(plan.ranks)
        line = {"tag": chance.choice((0, 1, 7)), "channel": chance.choice(("network", "lane0", "own"))}
        kernel = chance.choice(list(KERNELS))
        kind = chance.choice(list(KINDS))
        candidates: list[Any] = [
            Send(**base, lane=lane, to=rank, reads=(ref,), **line),
            Recv(**base, lane=lane, source=rank, writes=(ref,), **line),
            RecvAny(**base, lane=lane, sources=tuple(range(plan.ranks)), writes=(ref,), **line),
            Local(**base, lane=chance.choice(("compute", lane)), kernel=kernel, reads=(ref,), writes=(other,)),
            Local(**base, lane=chance.choice(("compute", lane)), kernel="copy", reads=(ref,), writes=(other,)),
            Local(**base, lane="compute", kernel="fill", writes=(ref,)),
            Local(**base, lane="compute", kernel="add", reads=(ref,), writes=(other,)),
            Collective(**base, lane=lane, kind=kind, postcondition=KINDS[kind], reads=(ref,), writes=(ref,)),
            SharedRead(**base, reads=(ref,), writes=(other,)),
            SharedAdd(**base, reads=(ref,), writes=(other,)),
            Need(**base, reads=(ref,)),
        ]
        if plan.tensors:
            tensor = chance.choice(plan.tensors)
            candidates.append(Ready(**base, tensor=tensor.name, writes=(Ref("gradient", tensor.start, tensor.stop),)))
        new = chance.choice(candidates)
        body.insert(where, new)
        # a partner for what goes between two ranks, and those behind it wait for it
        if chance.random() < 0.5 and where + 1 < len(body):
            j = chance.randrange(where + 1, len(body))
            body[j] = dataclasses.replace(body[j], after=(*body[j].after, new.name))

    return _edit(plan, chance, edit)


def message(plan: Plan, chance: random.Random) -> Plan:
    """A send on one rank and its receive on another, both in order."""
    source, to = chance.randrange(plan.ranks), chance.randrange(plan.ranks)
    ref, into = _some_ref(plan, chance), _some_ref(plan, chance)
    if chance.random() < 0.7:
        into = Ref(into.buffer, ref.start, ref.stop)
    tag = chance.randrange(20, 25)
    lane = chance.choice(("network", "lane0"))
    roles = []
    for role in plan.roles:
        body = list(body_of(role))
        for rank, op in (
            (source, Send(name="sent", lane=lane, to=to, tag=tag, reads=(ref,))),
            (to, Recv(name="received", lane=lane, source=source, tag=tag, writes=(into,))),
        ):
            if rank in role.ranks:
                body.insert(chance.randint(0, len(body)), op)
        roles.append(with_body(role, body))
    return dataclasses.replace(plan, roles=tuple(roles))


def _some_ref(plan: Plan, chance: random.Random) -> Ref:
    buffer = chance.choice(plan.buffers)
    if chance.random() < 0.4 and plan.tensors:
        tensor = chance.choice(plan.tensors)
        if tensor.stop <= buffer.elements:
            return Ref(buffer.name, tensor.start, tensor.stop)
    if chance.random() < 0.5:
        return Ref(buffer.name, 0, buffer.elements)
    start = chance.randint(0, buffer.elements)
    return Ref(buffer.name, start, chance.randint(start, buffer.elements), chance.random() < 0.1)


# Fields


def _changed_refs(chance: random.Random, refs: tuple[Ref, ...], plan: Plan) -> tuple[Ref, ...]:
    changed_refs = list(refs)
    how = chance.randrange(6)
    if how == 0 and changed_refs:
        changed_refs.pop(chance.randrange(len(changed_refs)))
    elif how == 1:
        changed_refs.insert(chance.randint(0, len(changed_refs)), _some_ref(plan, chance))
    elif how == 2 and len(changed_refs) > 1:
        chance.shuffle(changed_refs)
    elif changed_refs:
        i = chance.randrange(len(changed_refs))
        ref = changed_refs[i]
        changed_refs[i] = chance.choice(
            (
                ref._replace(start=ref.start + chance.choice((-2, -1, 1, 2))),
                ref._replace(stop=ref.stop + chance.choice((-2, -1, 1, 2))),
                ref._replace(mine=not ref.mine),
                ref._replace(buffer=chance.choice(plan.buffers).name),
                ref._replace(start=ref.start + 1, stop=ref.stop + 1),
                _some_ref(plan, chance),
            )
        )
    return tuple(changed_refs)


def ranges_alike(plan: Plan, chance: random.Random) -> Plan:
    """What one operation reads and writes, both changed in the same way."""

    def edit(body: list[Any]) -> None:
        i = _one(chance, body, Collective, Local)
        if i is None or not body[i].reads:
            return
        (ref, *rest), by = body[i].reads, chance.choice((-2, -1, 1, 2))
        new = chance.choice((ref._replace(start=ref.start + by), ref._replace(stop=ref.stop + by)))
        writes = tuple(Ref(w.buffer, new.start, new.stop, w.mine) if w[1:3] == ref[1:3] else w for w in body[i].writes)
        body[i] = dataclasses.replace(body[i], reads=(new, *rest), writes=writes)

    return _edit(plan, chance, edit)


def _names(chance: random.Random, op: Any, plan: Plan) -> list[str]:
    role = next((role for role in plan.roles if any(other.name == op.name for other in body_of(role))), plan.roles[0])
    return [other.name for other in body_of(role)]


def _waits(key: str) -> Callable[[random.Random, Any, Plan], Any]:
    def new(chance: random.Random, op: Any, plan: Plan) -> tuple[str, ...]:
        held, names = list(getattr(op, key)), _names(chance, op, plan)
        if held and chance.random() < 0.5:
            held.pop(chance.randrange(len(held)))
        if not held or chance.random() < 0.5:
            held.append(chance.choice(names))
        return tuple(held)

    return new


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
        body: tuple[Any, ...] = (new,) if chance.random() < 0.8 else first.body
    else:
        body = (Repeat(name="again", body=roles[i].body, count=chance.choice((None, 1, 2))),)
    roles[i] = Role(roles[i].name, roles[i].ranks, body)
    return dataclasses.replace(plan, roles=tuple(roles))


def _some_ranks(chance: random.Random, op: Any, plan: Plan) -> tuple[int, ...]:
    everyone = list(range(plan.ranks))
    chance.shuffle(everyone)
    return chance.choice(
        ((), tuple(sorted(everyone)), tuple(everyone), tuple(sorted(everyone[:2])), tuple(everyone[:1]))
    )


def kind(plan: Plan, chance: random.Random) -> Plan:
    """A collective of another kind, with the postcondition of that."""

    def edit(body: list[Any]) -> None:
        i = _one(chance, body, Collective)
        if i is not None:
            new = chance.choice(list(KINDS))
            body[i] = dataclasses.replace(body[i], kind=new, postcondition=KINDS[new])

    return _edit(plan, chance, edit)


def _number(chance: random.Random, op: Any, plan: Plan) -> int:
    return chance.choice((0, 1, 2, 3, 7, -1, 1 << 33))


def _rank(chance: random.Random, op: Any, plan: Plan) -> int:
    return chance.choice((*range(plan.ranks), plan.ranks, -1))


def _algorithm(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice(("native", *collectives.names(), "nonsense"))


def _arguments(chance: random.Random, op: Any, plan: Plan) -> dict[str, float]:
    """Without one, or with one more."""
    held = dict(op.arguments)
    if held and chance.random() < 0.6:
        held.pop(chance.choice(list(held)))
    else:
        held[chance.choice(("momentum", "clip", "scale", "value", "lr", "nonsense"))] = chance.choice((0.5, 2.0, -1.0))
    return held


def _sources(chance: random.Random, op: Any, plan: Plan) -> tuple[int, ...]:
    return tuple(chance.choices(range(plan.ranks), k=chance.randint(0, plan.ranks)))


def _channel(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice(("network", "lane0", "lane1", "own", "", "compute", "2", "a b"))


def _shape(chance: random.Random, op: Any, plan: Plan) -> tuple[int, ...]:
    return chance.choice(((), (plan.ranks,), (2, 2), (1, plan.ranks), (plan.ranks, 1), (0,), (3,)))


CHANGES: dict[str, Change] = {
    "drop": drop,
    "drop again": drop,
    "double": double,
    "move": move,
    "move again": move,
    "swap": swap,
    "rename": rename,
    "insert": insert,
    "insert again": insert,
    "message": message,
    "lane": _set(lane=lambda chance, op, plan: chance.choice(LANES)),
    "reads": _set(reads=lambda chance, op, plan: _changed_refs(chance, op.reads, plan)),
    "writes": _set(writes=lambda chance, op, plan: _changed_refs(chance, op.writes, plan)),
    "ranges alike": ranges_alike,
    "after": _set(after=_waits("after")),
    "after_previous": _set(after_previous=_waits("after_previous")),
    "buffers": buffers,
    "tensors": tensors,
    "ranks": ranks,
    "repeat": repeat,
    "kind": kind,
    "algorithm": _set(Collective, algorithm=_algorithm),
    "levels": _set(Collective, shape=_shape),
    "group": _set(Collective, ranks=_some_ranks),
    "root": _set(Collective, root=_rank),
    "tag": _set(Send, Recv, RecvAny, Reply, tag=_number),
    "rail": _set(Send, Recv, rail=_number),
    "channel": _set(Send, Recv, RecvAny, Reply, channel=_channel),
    "peer": _set(Send, Recv, to=_rank, source=_rank),
    "sources": _set(RecvAny, sources=_sources),
    "kernel": _set(Local, kernel=lambda chance, op, plan: chance.choice((*KERNELS, "nonsense"))),
    "arguments": _set(Local, arguments=_arguments),
    "adds": _set(Ready, adds=lambda chance, op, plan: not op.adds),
    "tensor": _set(Ready, tensor=lambda chance, op, plan: chance.choice((None, "x", *(t.name for t in plan.tensors)))),
    "layer": _set(Need, layer=lambda chance, op, plan: chance.choice((None, "x", *(t.name for t in plan.tensors)))),
    **coordinated.CHANGES,
}

"""Operations dropped, doubled, moved, renamed, inserted: messages that are lost, sent twice, early or late."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from changed_plans.bodies import body_of, with_body
from changed_plans.editing import KINDS, LANES, edited, one_of, some_ref
from gradsync.kernels import KERNELS
from gradsync.plan import Collective, Local, Need, Plan, Ready, Recv, RecvAny, Ref, Send, SharedAdd, SharedRead


def drop(plan: Plan, chance: random.Random) -> Plan:
    """Without one operation; those that waited for it wait for nothing, or for what it waited for."""

    def edit(body: list[Any]) -> None:
        i = one_of(chance, body)
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

    return edited(plan, chance, edit)


def double(plan: Plan, chance: random.Random) -> Plan:
    """One operation once more, next to itself or anywhere after; those that waited for it may wait for both."""

    def edit(body: list[Any]) -> None:
        i = one_of(chance, body)
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

    return edited(plan, chance, edit)


def move(plan: Plan, chance: random.Random) -> Plan:
    """One operation elsewhere."""

    def edit(body: list[Any]) -> None:
        i = one_of(chance, body)
        if i is not None:
            op = body.pop(i)
            near = max(0, min(len(body), i + chance.choice((-2, -1, 1, 2))))
            body.insert(near if chance.random() < 0.6 else chance.randint(0, len(body)), op)

    return edited(plan, chance, edit)


def swap(plan: Plan, chance: random.Random) -> Plan:
    """Two operations in each other's place."""

    def edit(body: list[Any]) -> None:
        i, j = one_of(chance, body), one_of(chance, body)
        if i is not None and j is not None:
            body[i], body[j] = body[j], body[i]

    return edited(plan, chance, edit)


def rename(plan: Plan, chance: random.Random) -> Plan:
    """Another name, for those that wait for it too or not."""

    def edit(body: list[Any]) -> None:
        i = one_of(chance, body)
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

    return edited(plan, chance, edit)


def insert(plan: Plan, chance: random.Random) -> Plan:
    """An operation of any kind on any ranges."""

    def edit(body: list[Any]) -> None:
        known = [op.name for op in body]
        where = chance.randint(0, len(body))
        some = tuple(chance.sample(known[:where], min(where, chance.randint(0, 2))))
        before = tuple(chance.sample(known, min(len(known), chance.randint(0, 1))))
        ref, other = some_ref(plan, chance), some_ref(plan, chance)
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

    return edited(plan, chance, edit)


def message(plan: Plan, chance: random.Random) -> Plan:
    """A send on one rank and its receive on another, both in order."""
    source, to = chance.randrange(plan.ranks), chance.randrange(plan.ranks)
    ref, into = some_ref(plan, chance), some_ref(plan, chance)
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

"""Fields of operations changed: what they read, write, wait for and name."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

from changed_plans.bodies import body_of
from changed_plans.editing import KINDS, LANES, Change, edited, one_of, some_ref
from gradsync import collectives
from gradsync.kernels import KERNELS
from gradsync.plan import Collective, Local, Plan, Ref


def setting(*kinds: type, **how: Callable[[random.Random, Any, Plan], Any]) -> Change:
    """Sets fields of one operation of these kinds."""

    def change(plan: Plan, chance: random.Random) -> Plan:
        def edit(body: list[Any]) -> None:
            i = one_of(chance, body, *kinds)
            if i is not None:
                op = body[i]
                values = {key: new(chance, op, plan) for key, new in how.items() if hasattr(op, key)}
                body[i] = dataclasses.replace(op, **values)

        return edited(plan, chance, edit)

    return change


def lane(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice(LANES)


def refs_of(key: str) -> Callable[[random.Random, Any, Plan], Any]:
    """Ranges that an operation reads or writes: one less, one more, in another order, or one of them changed."""

    def new(chance: random.Random, op: Any, plan: Plan) -> tuple[Ref, ...]:
        changed_refs = list(getattr(op, key))
        how = chance.randrange(6)
        if how == 0 and changed_refs:
            changed_refs.pop(chance.randrange(len(changed_refs)))
        elif how == 1:
            changed_refs.insert(chance.randint(0, len(changed_refs)), some_ref(plan, chance))
        elif how == 2 and len(changed_refs) > 1:
            chance.shuffle(changed_refs)
        elif changed_refs:
            i = chance.randrange(len(changed_refs))
            ref = changed_refs[i]
            changed_refs[i] = chance.choice(
                (
                    ref._replace(start=ref.start + chance.choice((-2, -1, 1, 2))),
                    ref._replace(stop=ref.stop + chance.choice((-2, -1, 1, 2))),
                    ref._replace(mine=pieces(plan, chance)),
                    ref._replace(buffer=chance.choice(plan.buffers).name),
                    ref._replace(start=ref.start + 1, stop=ref.stop + 1),
                    some_ref(plan, chance),
                )
            )
        return tuple(changed_refs)

    return new


def ranges_alike(plan: Plan, chance: random.Random) -> Plan:
    """What one operation reads and writes, both changed in the same way."""

    def edit(body: list[Any]) -> None:
        i = one_of(chance, body, Collective, Local)
        if i is None or not body[i].reads:
            return
        (ref, *rest), by = body[i].reads, chance.choice((-2, -1, 1, 2))
        new = chance.choice((ref._replace(start=ref.start + by), ref._replace(stop=ref.stop + by)))
        writes = tuple(Ref(w.buffer, new.start, new.stop, w.mine) if w[1:3] == ref[1:3] else w for w in body[i].writes)
        body[i] = dataclasses.replace(body[i], reads=(new, *rest), writes=writes)

    return edited(plan, chance, edit)


def _names(op: Any, plan: Plan) -> list[str]:
    role = next((role for role in plan.roles if any(other.name == op.name for other in body_of(role))), plan.roles[0])
    return [other.name for other in body_of(role)]


def waits(key: str) -> Callable[[random.Random, Any, Plan], Any]:
    """Names that an operation waits for: one less, one more, or another."""

    def new(chance: random.Random, op: Any, plan: Plan) -> tuple[str, ...]:
        held, names = list(getattr(op, key)), _names(op, plan)
        if held and chance.random() < 0.5:
            held.pop(chance.randrange(len(held)))
        if not held or chance.random() < 0.5:
            held.append(chance.choice(names))
        return tuple(held)

    return new


def kind(plan: Plan, chance: random.Random) -> Plan:
    """A collective of another kind, with the postcondition of that."""

    def edit(body: list[Any]) -> None:
        i = one_of(chance, body, Collective)
        if i is not None:
            new = chance.choice(list(KINDS))
            body[i] = dataclasses.replace(body[i], kind=new, postcondition=KINDS[new])

    return edited(plan, chance, edit)


def algorithm(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice(("native", *collectives.described(), "nonsense"))


def axis(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice((*plan.mesh.strides, "nonsense"))


def pieces(plan: Plan, chance: random.Random) -> tuple[str, ...]:
    return tuple(chance.choices([*plan.mesh.strides], k=chance.randint(0, 2)))


def shape(chance: random.Random, op: Any, plan: Plan) -> tuple[int, ...]:
    return chance.choice(((), (plan.ranks,), (2, 2), (1, plan.ranks), (plan.ranks, 1), (0,), (3,)))


def group(chance: random.Random, op: Any, plan: Plan) -> tuple[int, ...]:
    everyone = list(range(plan.ranks))
    chance.shuffle(everyone)
    return chance.choice(
        ((), tuple(sorted(everyone)), tuple(everyone), tuple(sorted(everyone[:2])), tuple(everyone[:1]))
    )


def rank(chance: random.Random, op: Any, plan: Plan) -> int:
    return chance.choice((*range(plan.ranks), plan.ranks, -1))


def number(chance: random.Random, op: Any, plan: Plan) -> int:
    return chance.choice((0, 1, 2, 3, 7, -1, 1 << 33))


def channel(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice(("network", "lane0", "lane1", "own", "", "compute", "2", "a b"))


def sources(chance: random.Random, op: Any, plan: Plan) -> tuple[int, ...]:
    return tuple(chance.choices(range(plan.ranks), k=chance.randint(0, plan.ranks)))


def kernel(chance: random.Random, op: Any, plan: Plan) -> str:
    return chance.choice((*KERNELS, "nonsense"))


def arguments(chance: random.Random, op: Any, plan: Plan) -> dict[str, float]:
    """Without one, or with one more."""
    held = dict(op.arguments)
    if held and chance.random() < 0.6:
        held.pop(chance.choice(list(held)))
    else:
        held[chance.choice(("momentum", "clip", "scale", "value", "lr", "nonsense"))] = chance.choice((0.5, 2.0, -1.0))
    return held


def tensor(chance: random.Random, op: Any, plan: Plan) -> str | None:
    return chance.choice((None, "x", *(each.name for each in plan.tensors)))

"""Tiny plans of synchronous SGD whose sums are made with a reduce and a broadcast, or pass through all-to-alls."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gradsync.collectives import ALL_TO_ALL, BROADCAST, NATIVE, POSTCONDITION, REDUCE
from gradsync.plan import Buffer, Collective, Kind, Local, Operation, Plan
from tiny_plans.collective import synchronous
from tiny_plans.parts import SIZES


def reduced_and_broadcast(ranks: int, algorithm: str = NATIVE, sizes: Sequence[int] = SIZES) -> Plan:
    """Each message is reduced to a rank, in turn another one, and broadcast from there."""
    whole = synchronous(ranks, sizes)
    body: list[Operation] = []
    for op in whole.roles[0].body:
        if isinstance(op, Collective):
            root = sum(isinstance(other, Collective) for other in body) // 2 % ranks
            reduce = _as(op, REDUCE, algorithm, f"{op.name}:reduce", root)
            body += [reduce, dataclasses.replace(_as(op, BROADCAST, algorithm, op.name, root), after=(reduce.name,))]
        else:
            body.append(op)
    return _with(whole, "reduced and broadcast", body)


def exchanged(ranks: int, algorithm: str = NATIVE) -> Plan:
    """Before its all-reduce a copy of each message goes through an all-to-all, and through another that undoes it."""
    whole = synchronous(ranks, [2 * ranks, ranks, 3 * ranks])
    moved = Buffer("moved", whole.tensors[-1].stop, "float64")
    body: list[Operation] = []
    for op in whole.roles[0].body:
        if isinstance(op, Collective):
            out, home = f"{op.name}:out", f"{op.name}:home"
            copy = tuple(ref._replace(buffer=moved.name) for ref in op.writes)
            body.append(Local(name=out, lane=op.lane, kernel="copy", reads=op.reads, writes=copy, after=op.after))
            for name in (f"{op.name}:there", f"{op.name}:back"):
                there = _as(op, ALL_TO_ALL, algorithm, name)
                body.append(dataclasses.replace(there, after=(body[-1].name,), reads=copy, writes=copy))
            body.append(Local(name=home, lane=op.lane, kernel="copy", reads=copy, writes=op.writes))
            body.append(dataclasses.replace(op, after=(home,)))
        else:
            body.append(op)
    return _with(dataclasses.replace(whole, buffers=(*whole.buffers, moved)), "exchanged", body)


def _as(op: Collective, kind: Kind, algorithm: str, name: str, root: int = 0) -> Collective:
    return dataclasses.replace(
        op, name=name, kind=kind, postcondition=POSTCONDITION[kind], algorithm=algorithm, root=root
    )


def _with(plan: Plan, name: str, body: Sequence[Operation]) -> Plan:
    (role,) = plan.roles
    return dataclasses.replace(plan, name=name, roles=(dataclasses.replace(role, body=tuple(body)),))

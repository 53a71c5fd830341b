"""Tiny plans of synchronous SGD whose ranks have collectives alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gradsync import collectives, optimizers, topologies
from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.plan import Buffer, Collective, Local, Operation, Plan, Ref, Repeat, Role
from gradsync.schedules import Message
from gradsync.updates import ssgd
from tiny_plans.parts import LR, SIZES
from tiny_workloads import workload


def synchronous(
    ranks: int,
    sizes: Sequence[int] = SIZES,
    messages: Sequence[Message] = (),
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
) -> Plan:
    """Plain synchronous SGD, with one message per layer unless `messages` are given."""
    load = workload([8 * size for size in sizes], [1.0] * len(sizes), dtype="float64")
    chosen = tuple(messages) or tuple(Message(i, i) for i in range(len(sizes)))
    sgd = optimizers.get("sgd", lr=LR)
    return ssgd.plan("synchronous", load, chosen, ranks, algorithm=algorithm, shape=shape, optimizer=sgd)


def levels(algorithm: str, ranks: int) -> tuple[int, ...]:
    """The levels on which `ranks` ranks run a collective: those of its own topology, if that holds so many."""
    try:
        return collectives.shape_on(algorithm, topologies.parse(collectives.topology_of(algorithm), ranks), ranks)
    except InputError:  # no BCube of several levels has 5 hosts, say
        return (ranks,)


def two_lanes(ranks: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Messages alternate between two lanes, which overlap."""
    return synchronous(ranks, sizes, [Message(i, i, f"lane{i % 2}") for i in range(len(sizes))])


def uneven_roles(ranks: int, algorithm: str = "ring") -> Plan:
    """Rank 0 has an operation more than the others, so that the collectives stand in different places."""
    whole = synchronous(ranks, algorithm=algorithm)
    spare = Buffer("spare", 2, "float64")
    extra = Local(name="extra", kernel="fill", arguments={"value": 1.0}, writes=(Ref("spare", 0, 2),))
    body = whole.roles[0].body
    roles = (Role("first", (0,), (extra, *body)), Role("others", tuple(range(1, ranks)), body))
    return dataclasses.replace(whole, name="uneven roles", buffers=(*whole.buffers, spare), roles=roles)


def in_groups(groups: int, members: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Groups of ranks that each train by themselves, with collectives of their own ranks."""
    whole = synchronous(members, sizes)
    roles = []
    for group in range(groups):
        ranks = tuple(range(group * members, (group + 1) * members))
        body = tuple(
            dataclasses.replace(op, ranks=ranks)
            if isinstance(op, Collective)
            else dataclasses.replace(op, requires=None)  # a group has no sum over all ranks
            if isinstance(op, Local)
            else op
            for op in whole.roles[0].body
        )
        roles.append(Role(f"group{group}", ranks, body))
    return dataclasses.replace(whole, name="in groups", ranks=groups * members, roles=tuple(roles))


def two_level(sizes: Sequence[int] = SIZES) -> Plan:
    """Four ranks: a sum within each pair, then one across the pairs."""
    whole = synchronous(4, sizes)
    roles = []
    for rank in range(4):
        pair, across = (rank // 2 * 2, rank // 2 * 2 + 1), (rank % 2, rank % 2 + 2)
        body: list[Operation] = []
        for op in whole.roles[0].body:
            if isinstance(op, Collective):
                body.append(dataclasses.replace(op, name=f"{op.name}.pair", ranks=pair))
                body.append(dataclasses.replace(op, after=(f"{op.name}.pair",), ranks=across))
            else:
                body.append(op)
        roles.append(Role(f"rank{rank}", (rank,), tuple(body)))
    return dataclasses.replace(whole, name="two levels", roles=tuple(roles))


def repeated(ranks: int, count: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Synchronous SGD whose turn is `count` whole steps."""
    whole = synchronous(ranks, sizes)
    body = (Repeat(name="steps", body=whole.roles[0].body, count=count),)
    return dataclasses.replace(whole, name="repeated", roles=(dataclasses.replace(whole.roles[0], body=body),))

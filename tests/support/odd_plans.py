"""Plans that train nothing, or are larger, longer or of other types than any that trains."""

from __future__ import annotations

import dataclasses
from typing import Any

import tiny_plans as tiny
from gradsync.plan import Buffer, Collective, Local, Plan, Recv, Ref, Repeat, Role, Send
from plan_edits import with_buffers


def alone(*ops: Any, buffers: tuple[Buffer, ...] = (), ranks: int = 1) -> Plan:
    """Operations of ranks that compute no gradients, on buffers of four elements that hold something, a and b."""
    known = (Buffer("a", 4, "float64", role="state"), Buffer("b", 4, "float64", role="state"))
    plan = Plan("alone", ranks, (), known, (Role("worker", tuple(range(ranks)), ops),))
    return with_types(with_buffers(plan, *buffers))


def with_types(plan: Plan, **types: str) -> Plan:
    """With other types of the buffers that are named."""
    buffers = tuple(dataclasses.replace(each, dtype=types.get(each.name, each.dtype)) for each in plan.buffers)
    return dataclasses.replace(plan, buffers=buffers)


def kernel(kernel: str, reads: tuple[Ref, ...], writes: tuple[Ref, ...], **more: Any) -> Local:
    return Local(name="x", kernel=kernel, reads=reads, writes=writes, **more)


def scaled(kernel_name: str, dtype: str, into: str = "", **arguments: float) -> Plan:
    """A kernel with these arguments from a to b."""
    op = kernel(kernel_name, (Ref("a", 0, 4),), (Ref("b", 0, 4),), arguments=arguments)
    return with_types(alone(op), a=dtype, b=into or dtype)


def long_and_sparse(dtype: str) -> Plan:
    """Indices of a gradient of more than 2^31 elements."""
    elements = (1 << 31) + 1
    plan = tiny.sparse(1, (elements,), 1)
    return with_types(plan, indices=dtype)


def many_groups(rails: int) -> Plan:
    """Two ranks that exchange a message on each of 60 channels and so many rails."""
    lines = [(f"c{channel}", rail) for channel in range(60) for rail in range(rails)]
    a, b = (Ref("a", 0, 1),), (Ref("b", 0, 1),)
    one = [Send(name=f"s{i}", lane="network", to=1, channel=c, rail=r, reads=a) for i, (c, r) in enumerate(lines)]
    two = [Recv(name=f"r{i}", lane="network", source=0, channel=c, rail=r, writes=b) for i, (c, r) in enumerate(lines)]
    return dataclasses.replace(
        alone(*one, ranks=2), roles=(Role("one", (0,), tuple(one)), Role("two", (1,), tuple(two)))
    )


def many_collectives(groups: int) -> Plan:
    """Pairs of ranks, each with a sum of its own: many groups, and each rank is in one of them."""
    ref = (Ref("a", 0, 1),)
    roles = tuple(
        Role(
            f"pair{i}",
            (2 * i, 2 * i + 1),
            (Collective(name="s", lane="n", ranks=(2 * i, 2 * i + 1), reads=ref, writes=ref),),
        )
        for i in range(groups)
    )
    return dataclasses.replace(alone(), ranks=2 * groups, roles=roles)


def repeated(count: int, *body: Any) -> Plan:
    return alone(Repeat(name="more", body=body, count=count), Local(name="last", kernel="join"))

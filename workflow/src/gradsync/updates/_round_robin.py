"""Elastic averaging in which a master exchanges with one worker after the other (SC17 paper, Algorithm 1)."""

from __future__ import annotations

from typing import Any

from gradsync.plan import Local, Plan, Recv, Role, Send
from gradsync.updates._packed import NETWORK, Packed, elastic


def planned(packed: Packed, rho: float, *, overlapped: bool) -> Plan:
    """The plan of a sweep over all workers; a worker computes beside its transfers (`overlapped`), or between them."""
    rates = elastic(packed, rho)
    gradient, parameter, centre, incoming = (
        packed.all_of(key) for key in ("gradient", "parameter", "centre", "incoming")
    )
    sweep: list[Any] = []
    for worker in packed.workers:
        first = worker == packed.workers[0]
        before = f"pull{packed.workers[-1] if first else worker - 1}"
        waits: dict[str, Any] = {"lane": NETWORK, "after_previous" if first else "after": (before,)}
        sweep += [
            Send(name=f"centre{worker}", to=worker, reads=(centre,), **waits),
            Recv(name=f"take{worker}", source=worker, writes=(incoming,), **waits),
            Local(
                name=f"pull{worker}",
                kernel="elastic_centre",
                arguments=rates,
                after=(f"centre{worker}", f"take{worker}"),
                reads=(incoming,),
                writes=(centre,),
            ),
        ]
    fetch = Recv(name="fetch", lane=NETWORK, source=0, after_previous=("update",), writes=(centre,))
    push = Send(name="push", lane=NETWORK, to=0, after=() if overlapped else (packed.computed,), reads=(parameter,))
    update = Local(
        name="update",
        kernel="elastic_worker",
        arguments=rates,
        after=("fetch", "push"),
        reads=(gradient, centre),
        writes=(parameter,),
    )
    turn = (fetch, *packed.passes(after=() if overlapped else ("fetch",)), push, update)
    roles = (Role("master", (0,), tuple(sweep)), Role("worker", packed.workers, turn))
    return packed.plan(roles, "centre", "incoming")

"""Methods whose workers share memory on one host, and add to it without a lock (or with one)."""

from __future__ import annotations

from typing import Any

from gradsync.plan import Local, Plan, Role, SharedAdd, SharedRead
from gradsync.updates._packed import NETWORK, Packed, elastic


def gradients(packed: Packed, locked: bool) -> Plan:
    """Parameters are shared: a worker reads them, computes, and adds what SGD adds."""
    gradient, parameter, centre, difference = (
        packed.all_of(key) for key in ("gradient", "parameter", "centre", "difference")
    )
    body = (
        SharedRead(name="fetch", reads=(centre,), writes=(parameter,)),
        *packed.passes(),
        Local(
            name="step", kernel="sgd_difference", arguments={"lr": packed.lr}, reads=(gradient,), writes=(difference,)
        ),
        SharedAdd(name="push", reads=(difference,), writes=(centre,), locked=locked),
    )
    return _plan(packed, body, "difference")


def elastic_exchanges(packed: Packed, rho: float, locked: bool) -> Plan:
    """The centre is shared: a worker reads it, adds its difference to it, and updates itself."""
    gradient, parameter, centre, incoming, difference = (
        packed.all_of(key) for key in ("gradient", "parameter", "centre", "incoming", "difference")
    )
    rates = elastic(packed, rho)
    body = (
        SharedRead(name="fetch", lane=NETWORK, after_previous=("update",), reads=(centre,), writes=(incoming,)),
        Local(
            name="differ",
            lane=NETWORK,
            kernel="elastic_difference",
            arguments=rates,
            reads=(parameter, incoming),
            writes=(difference,),
        ),
        SharedAdd(name="push", lane=NETWORK, reads=(difference,), writes=(centre,), locked=locked),
        *packed.passes(),
        Local(
            name="update",
            kernel="elastic_worker",
            arguments=rates,
            after=("push",),
            reads=(gradient, incoming),
            writes=(parameter,),
        ),
    )
    return _plan(packed, body, "incoming", "difference")


def _plan(packed: Packed, body: tuple[Any, ...], *buffers: str) -> Plan:
    """All ranks are workers, who share the centre."""
    return packed.plan((Role("worker", packed.workers, body),), "centre", *buffers, shared=True)

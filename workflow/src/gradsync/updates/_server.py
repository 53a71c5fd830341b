"""Methods whose master serves workers first come, first served: what it takes from one, gives back, and updates."""

from __future__ import annotations

from typing import Any

from gradsync.plan import Local, Plan, Recv, RecvAny, Ref, Repeat, Reply, Role, Send
from gradsync.updates._packed import NETWORK, Packed, elastic, with_momentum

TAKEN, GIVEN = 1, 2  # tags


def gradients(packed: Packed, momentum: float) -> Plan:
    """A server applies each gradient as it comes, and gives its parameters back."""
    gradient, parameter, incoming = (packed.all_of(key) for key in ("gradient", "parameter", "incoming"))
    rates, moving = with_momentum(packed, {"lr": packed.lr}, momentum)
    serve = (
        _take(packed, incoming, "give"),
        Local(
            name="apply",
            kernel="sgd",
            arguments=rates,
            after=("take",),
            after_previous=("give",),
            reads=(incoming,),
            writes=(parameter, *map(packed.all_of, moving)),
        ),
        Reply(name="give", lane=NETWORK, to="take", after=("apply",), reads=(parameter,), tag=GIVEN),
    )
    worker = (
        *packed.passes(after_previous=("push", "fetch")),
        Send(name="push", lane=NETWORK, after=(packed.computed,), reads=(gradient,), to=0, tag=TAKEN),
        Recv(name="fetch", lane=NETWORK, source=0, tag=GIVEN, writes=(parameter,)),
    )
    return _plan(packed, serve, worker, *moving, "incoming")


def elastic_exchanges(packed: Packed, rho: float, momentum: float) -> Plan:
    """A master takes parameters as they come, gives the centre, and pulls it to them; workers update beside that."""
    gradient, parameter, centre, incoming = (
        packed.all_of(key) for key in ("gradient", "parameter", "centre", "incoming")
    )
    rates = elastic(packed, rho)
    of_worker, moving = with_momentum(packed, rates, momentum)
    serve = (
        _take(packed, incoming, "pull"),
        Reply(name="give", lane=NETWORK, to="take", reads=(centre,), after_previous=("pull",), tag=GIVEN),
        Local(
            name="pull",
            kernel="elastic_centre",
            arguments=rates,
            after=("take", "give"),
            reads=(incoming,),
            writes=(centre,),
        ),
    )
    worker = (
        Send(name="push", lane=NETWORK, after_previous=("update",), reads=(parameter,), to=0, tag=TAKEN),
        Recv(name="fetch", lane=NETWORK, source=0, after_previous=("update",), writes=(centre,), tag=GIVEN),
        *packed.passes(),
        Local(
            name="update",
            kernel="elastic_worker",
            arguments=of_worker,
            after=("push", "fetch"),
            reads=(gradient, centre),
            writes=(parameter, *map(packed.all_of, moving)),
        ),
    )
    return _plan(packed, serve, worker, "centre", *moving, "incoming")


def _take(packed: Packed, incoming: Ref, last: str) -> RecvAny:
    """What comes next from any worker, once the one before it has been served."""
    return RecvAny(
        name="take", lane=NETWORK, sources=packed.workers, tag=TAKEN, after_previous=(last,), writes=(incoming,)
    )


def _plan(packed: Packed, serve: tuple[Any, ...], worker: tuple[Any, ...], *buffers: str) -> Plan:
    """Rank 0 serves until the workers have had their turns."""
    roles = (Role("master", (0,), (Repeat(name="serve", body=serve),)), Role("worker", packed.workers, worker))
    return packed.plan(roles, *buffers)

"""Tiny plans of a server, of shared memory and of elastic averaging."""

from __future__ import annotations

from collections.abc import Sequence

from gradsync.plan import Buffer, Local, Plan, Recv, RecvAny, Ref, Repeat, Reply, Role, Send, SharedAdd, SharedRead
from tiny_plans.parts import LR, NETWORK, RHO, SIZES, layout, passes, plan_of


def async_server(workers: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Rank 0 applies each worker's gradient as it comes and replies with its parameters."""
    tensors = layout(sizes)
    gradient, parameter, incoming = (Ref(name, 0, tensors[-1].stop) for name in ("gradient", "parameter", "incoming"))
    serve = (
        RecvAny(name="take", lane=NETWORK, sources=tuple(range(1, workers + 1)), tag=1, writes=(incoming,)),
        Local(
            name="apply",
            kernel="sgd",
            arguments={"lr": LR},
            after=("take",),
            after_previous=("give",),
            reads=(incoming,),
            writes=(parameter,),
        ),
        Reply(name="give", lane=NETWORK, to="take", after=("apply",), reads=(parameter,), tag=2),
    )
    worker = (
        *passes(tensors, after_previous=("push", "fetch")),
        Send(name="push", lane=NETWORK, after=(f"ready:{tensors[-1].name}",), reads=(gradient,), to=0, tag=1),
        Recv(name="fetch", lane=NETWORK, source=0, tag=2, writes=(parameter,)),
    )
    roles = [
        Role("server", (0,), (Repeat(name="serve", body=serve),)),
        Role("worker", tuple(range(1, workers + 1)), worker),
    ]
    return plan_of("async server", tensors, roles, more=["incoming"])


def hogwild(ranks: int, sizes: Sequence[int] = SIZES, *, locked: bool = True) -> Plan:
    """Every rank adds to parameters that all of them share."""
    tensors = layout(sizes)
    elements = tensors[-1].stop
    gradient, parameter, centre = (Ref(name, 0, elements) for name in ("gradient", "parameter", "centre"))
    body = (
        SharedRead(name="fetch", reads=(centre,), writes=(parameter,)),
        *passes(tensors),
        SharedAdd(name="push", reads=(gradient,), writes=(centre,), scale=-LR, locked=locked),
    )
    shared = Buffer("centre", elements, "float64", shared=True, role="centre")
    return plan_of("hogwild", tensors, [Role("worker", tuple(range(ranks)), body)], [shared])


def easgd_round_robin(workers: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Rank 0 holds the centre and serves the workers one after the other."""
    tensors = layout(sizes)
    gradient, parameter, centre, incoming = (
        Ref(name, 0, tensors[-1].stop) for name in ("gradient", "parameter", "centre", "incoming")
    )
    elastic = {"lr": LR, "rho": RHO}
    sweep: list = []
    for worker in range(1, workers + 1):
        before = () if worker == 1 else (f"pull{worker - 1}",)
        last = (f"pull{workers}",) if worker == 1 else ()
        waits = {"lane": NETWORK, "after": before, "after_previous": last}
        sweep += [
            Send(name=f"centre{worker}", to=worker, reads=(centre,), **waits),
            Recv(name=f"take{worker}", source=worker, writes=(incoming,), **waits),
            Local(
                name=f"pull{worker}",
                kernel="elastic_centre",
                arguments=elastic,
                after=(f"centre{worker}", f"take{worker}"),
                reads=(incoming,),
                writes=(centre,),
            ),
        ]
    turn = (
        *passes(tensors),
        Recv(
            name="centre",
            lane=NETWORK,
            source=0,
            after=(f"ready:{tensors[-1].name}",),
            after_previous=("update",),
            writes=(centre,),
        ),
        Send(name="push", lane=NETWORK, to=0, reads=(parameter,)),
        Local(
            name="update",
            kernel="elastic_worker",
            arguments=elastic,
            after=("centre", "push"),
            reads=(gradient, centre),
            writes=(parameter,),
        ),
    )
    roles = [Role("master", (0,), tuple(sweep)), Role("worker", tuple(range(1, workers + 1)), turn)]
    return plan_of("easgd, round robin", tensors, roles, more=["centre", "incoming"])

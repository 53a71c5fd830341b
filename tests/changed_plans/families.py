"""Plans of elastic, asynchronous, local, delayed and sparse updates, which nothing may refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import methods
from gradsync.plan import (
    Buffer,
    Local,
    Operation,
    Plan,
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
from tiny_plans import LR, RHO, layout, passes, place

NETWORK = "network"
SIZES = (5, 3)
TENSORS = layout(SIZES)
ELEMENTS = TENSORS[-1].stop
LAST = f"ready:{TENSORS[-1].name}"
ELASTIC = {"lr": LR, "rho": RHO}


def _whole(buffer: str) -> Ref:
    return Ref(buffer, 0, ELEMENTS)


def _plan(name: str, *roles: Role, more: tuple[Buffer, ...] = (), tensors: tuple[Tensor, ...] = TENSORS) -> Plan:
    keyed = tuple(Buffer(each, ELEMENTS, "float64", role=each) for each in ("gradient", "parameter"))
    ranks = sum(len(role.ranks) for role in roles)
    return Plan(name, ranks, tensors, (*keyed, *more), roles)


def _keyed(name: str, role: Any = "") -> Buffer:
    return Buffer(name, ELEMENTS, "float64", role=role or name)


def _served(*body: Operation) -> Role:
    return Role("master", (0,), (Repeat(name="serve", body=body),))


def _take(workers: int, *, after_previous: tuple[str, ...] = (), into: tuple[Ref, ...] = ()) -> RecvAny:
    sources = tuple(range(1, workers + 1))
    writes = into or (_whole("incoming"),)
    return RecvAny(name="take", lane=NETWORK, sources=sources, tag=1, writes=writes, after_previous=after_previous)


def _give(buffer: str, after: str = "take") -> Reply:
    return Reply(name="give", lane=NETWORK, to="take", after=(after,), reads=(_whole(buffer),), tag=2)


def _update(**more: Any) -> Local:
    base: dict[str, Any] = {"name": "update", "kernel": "sgd", "arguments": {"lr": LR}}
    base |= {"reads": (_whole("gradient"),), "writes": (_whole("parameter"),)}
    return Local(**(base | more))


def _elastic(**more: Any) -> Local:
    base: dict[str, Any] = {"name": "update", "kernel": "elastic_worker", "arguments": ELASTIC}
    base |= {"reads": (_whole("gradient"), _whole("centre")), "writes": (_whole("parameter"),)}
    return Local(**(base | more))


def async_easgd(workers: int, steps: int = 1) -> Plan:
    """The master gives whoever comes its centre and pulls it; of a worker's `steps`, all but the last are its own."""
    body = (
        _take(workers, after_previous=("pull",)),
        _give("centre"),
        Local(
            name="pull",
            kernel="elastic_centre",
            arguments=ELASTIC,
            after=("take", "give"),
            reads=(_whole("incoming"),),
            writes=(_whole("centre"),),
        ),
    )
    alone = (*passes(TENSORS, after_previous=("step",)), _update(name="step", after=(LAST,)))
    local = (Repeat(name="local", body=alone, count=steps - 1),) if steps > 1 else ()
    turn = (
        *local,
        *passes(TENSORS, after_previous=("update",)),
        Send(
            name="push",
            lane=NETWORK,
            to=0,
            tag=1,
            after=("step",) if local else (),
            after_previous=("update",),
            reads=(_whole("parameter"),),
        ),
        Recv(name="fetch", lane=NETWORK, source=0, tag=2, after_previous=("update",), writes=(_whole("centre"),)),
        _elastic(after=("push", "fetch")),
    )
    worker = Role("worker", tuple(range(1, workers + 1)), turn)
    return _plan("async easgd", _served(*body), worker, more=(_keyed("centre"), _keyed("incoming", "scratch")))


def delayed_server(workers: int) -> Plan:
    """The server replies before it applies: a worker's own gradient is in what it gets a turn later."""
    body = (
        _take(workers, after_previous=("apply",)),
        _give("parameter"),
        _update(name="apply", after=("take", "give"), reads=(_whole("incoming"),)),
    )
    turn = (
        *passes(TENSORS, after_previous=("push", "fetch")),
        Send(name="push", lane=NETWORK, to=0, tag=1, after=(LAST,), reads=(_whole("gradient"),)),
        Recv(name="fetch", lane=NETWORK, source=0, tag=2, writes=(_whole("parameter"),)),
    )
    worker = Role("worker", tuple(range(1, workers + 1)), turn)
    return _plan("delayed server", _served(*body), worker, more=(_keyed("incoming", "scratch"),))


def synchronous_server(workers: int) -> Plan:
    """The server sums the gradients of all workers, updates once, and sends its parameters to all."""
    members = range(1, workers + 1)
    body: list[Operation] = [
        Recv(
            name=f"take{i}",
            lane=NETWORK,
            source=i,
            after_previous=("update",),
            writes=(_whole("gradient" if i == 1 else f"from{i}"),),
        )
        for i in members
    ]
    body += [
        Local(
            name=f"add{i}",
            kernel="add",
            after=("take1", f"take{i}"),
            reads=(_whole(f"from{i}"),),
            writes=(_whole("gradient"),),
        )
        for i in members[1:]
    ]
    gave = tuple(f"give{i}" for i in members)
    body.append(
        _update(
            arguments={"lr": LR, "scale": 1.0 / workers},
            after=tuple(f"take{i}" for i in members),
            after_previous=gave,
            requires="sum",
        )
    )
    body += [
        Send(name=f"give{i}", lane=NETWORK, to=i, after=("update",), reads=(_whole("parameter"),)) for i in members
    ]
    turn = (
        *passes(TENSORS, after_previous=("push", "fetch")),
        Send(name="push", lane=NETWORK, to=0, after=(LAST,), reads=(_whole("gradient"),)),
        Recv(name="fetch", lane=NETWORK, source=0, writes=(_whole("parameter"),)),
    )
    more = tuple(_keyed(f"from{i}", "scratch") for i in members[1:])
    return _plan(
        "synchronous server", Role("server", (0,), tuple(body)), Role("worker", tuple(members), turn), more=more
    )


def hogwild_by_layer(ranks: int, *, locked: bool = True) -> Plan:
    """Each layer is fetched before forward, and added on a lane of its own as soon as its gradient is there."""
    fetches = [
        SharedRead(
            name=f"fetch:{tensor.name}",
            after_previous=(f"push:{tensor.name}",),
            reads=(place("centre", tensor),),
            writes=(place("parameter", tensor),),
        )
        for tensor in TENSORS
    ]
    need, *readies = passes(TENSORS, after_previous=tuple(f"push:{tensor.name}" for tensor in TENSORS))
    body: list[Operation] = [*fetches, need]
    for number, (ready, tensor) in enumerate(zip(readies, TENSORS, strict=True)):
        add = SharedAdd(
            name=f"push:{tensor.name}",
            lane=f"lane{number}",
            after=(ready.name,),
            reads=(place("gradient", tensor),),
            writes=(place("centre", tensor),),
            scale=-LR,
            locked=locked,
        )
        body += [ready, add]
    shared = Buffer("centre", ELEMENTS, "float64", shared=True, role="centre")
    return _plan("hogwild by layer", Role("worker", tuple(range(ranks)), tuple(body)), more=(shared,))


def sparse_server(workers: int, k: int = 2) -> Plan:
    """Workers keep residuals and push their largest gradients; the server decodes and applies each as it comes."""
    message = (Ref("values", 0, k), Ref("indices", 0, k))
    body = (
        _take(workers, into=message, after_previous=("decode",)),
        Local(
            name="decode",
            kernel="decode_sum",
            after=("take",),
            after_previous=("apply",),
            reads=message,
            writes=(_whole("gradient"),),
        ),
        _update(name="apply", after=("decode",), after_previous=("give",)),
        _give("parameter", after="apply"),
    )
    turn = (
        *passes(TENSORS, after_previous=("fetch",)),
        Local(
            name="encode",
            kernel="encode_exact_topk",
            after=(LAST,),
            after_previous=("push",),
            reads=(_whole("gradient"),),
            writes=(*message, _whole("residual")),
        ),
        Send(name="push", lane=NETWORK, to=0, tag=1, after=("encode",), reads=message),
        Recv(name="fetch", lane=NETWORK, source=0, tag=2, writes=(_whole("parameter"),)),
    )
    more = (_keyed("residual"), Buffer("values", k, "float64"), Buffer("indices", k, "int64"))
    return _plan("sparse server", _served(*body), Role("worker", tuple(range(1, workers + 1)), turn), more=more)


def replied_later(workers: int, elements: int = 500_000) -> Plan:
    """A server that works between a message and its reply, on another lane than it receives on: that is turns ahead."""
    few, many = Ref("question", 0, 2), (Ref("work", 0, elements), Ref("done", 0, elements))
    body = (
        _take(workers, into=(few,)),
        Local(name="work", lane="other", kernel="add", after=("take",), reads=many[:1], writes=many[1:]),
        Reply(name="give", lane="other", to="take", reads=(Ref("answer", 0, 2),), tag=2),
    )
    turn = (
        Send(name="push", lane=NETWORK, to=0, tag=1, reads=(Ref("answer", 0, 2),)),
        Recv(name="fetch", lane=NETWORK, source=0, tag=2, writes=(few,)),
    )
    buffers = (
        *(Buffer(name, 2, "float64", role="state") for name in ("question", "answer")),
        *(Buffer(name, elements, "float32", role="state") for name in ("work", "done")),
    )
    roles = (_served(*body), Role("worker", tuple(range(1, workers + 1)), turn))
    return Plan("replied later", workers + 1, (), buffers, roles)


def families() -> dict[str, Callable[[], Plan]]:
    """Name -> what makes the plan."""
    return {
        "async easgd 1": lambda: async_easgd(1),
        "async easgd 3": lambda: async_easgd(3),
        "async easgd 2, of several steps": lambda: async_easgd(2, 3),
        "delayed server 3": lambda: delayed_server(3),
        "synchronous server 3": lambda: synchronous_server(3),
        "hogwild by layer 3": lambda: hogwild_by_layer(3),
        "hogwild by layer 3, unlocked": lambda: hogwild_by_layer(3, locked=False),
        "replied later 3": lambda: replied_later(3),
        "sparse server 2": lambda: sparse_server(2),
        "sync easgd 2": lambda: methods.planned("sync_easgd2", 2),
        "sync easgd 3, beside a master": lambda: methods.planned("sync_easgd1", 3),
        "local sgd 3": lambda: methods.planned("local_sgd", 3),
        "diloco 2": lambda: methods.planned("diloco", 2),
    }

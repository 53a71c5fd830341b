"""Small plans, one for each kind of communication that the vocabulary must carry, and their own reference values.

Every builder gives a plan whose buffers are float64, so that values can be compared to the last digits. `pull` is the
gradient that all of them use; the references below compute with it and with nothing of the package.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from gradsync import collectives, topologies
from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.plan import (
    KEYED,
    Buffer,
    Collective,
    Local,
    Need,
    Operation,
    Plan,
    Ready,
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
from gradsync.rounds.lowering import lowered
from gradsync.schedules import Message
from gradsync.updates import ssgd
from tiny_workloads import workload

LR = 0.125
RHO = 0.5
TRUST, DECAY = 0.25, 0.5
NETWORK = "network"
SIZES = (5, 3, 4, 1)


def start(elements: int) -> np.ndarray:
    """First parameters."""
    return np.linspace(-1.0, 2.0, elements)


def pull(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    """A gradient that depends on the rank, the turn and the parameters."""
    target = np.random.default_rng((rank, turn)).normal(size=len(parameter))
    return parameter * (rank + 1) / 4 - target


def fixed_pull(rank: int, turn: int, parameter: np.ndarray) -> np.ndarray:
    """A gradient that does not depend on the parameters: sums of it come out equal in any order."""
    return pull(rank, turn, np.zeros_like(parameter))


def layout(sizes: Sequence[int]) -> tuple[Tensor, ...]:
    stops = list(accumulate(sizes))
    return tuple(
        Tensor(f"layer{len(sizes) - i}", stop - size, stop)
        for i, (size, stop) in enumerate(zip(sizes, stops, strict=True))
    )


def place(buffer: str, tensor: Tensor) -> Ref:
    return Ref(buffer, tensor.start, tensor.stop)


def passes(tensors: Sequence[Tensor], after_previous: tuple[str, ...] = ()) -> list[Need | Ready]:
    """Forward, then backward tensor by tensor."""
    parameter = Ref("parameter", 0, tensors[-1].stop)
    return [
        Need(name="forward", reads=(parameter,), after_previous=after_previous),
        *(
            Ready(
                name=f"ready:{tensor.name}",
                tensor=tensor.name,
                reads=(place("parameter", tensor),),
                writes=(place("gradient", tensor),),
            )
            for tensor in tensors
        ),
    ]


def _plan(
    name: str,
    tensors: tuple[Tensor, ...],
    roles: Sequence[Role],
    buffers: Sequence[Buffer] = (),
    more: Sequence[str] = (),
) -> Plan:
    """`more` names further buffers that are as long as the gradient; those that have the name of a role have it."""
    elements = tensors[-1].stop
    keyed = tuple(
        Buffer(name, elements, "float64", role=name if name in KEYED else "scratch")
        for name in ("gradient", "parameter", *more)
    )
    ranks = sum(len(role.ranks) for role in roles)
    return Plan(name=name, ranks=ranks, tensors=tensors, buffers=(*keyed, *buffers), roles=tuple(roles))


def synchronous(
    ranks: int,
    sizes: Sequence[int] = SIZES,
    messages: Sequence[Message] = (),
    algorithm: str = NATIVE,
    shape: tuple[int, ...] = (),
) -> Plan:
    """Plain synchronous SGD; one message a layer unless told."""
    load = workload([8 * size for size in sizes], [1.0] * len(sizes), dtype="float64")
    chosen = tuple(messages) or tuple(Message(i, i) for i in range(len(sizes)))
    return ssgd.plan("synchronous", load, chosen, ranks, algorithm=algorithm, shape=shape, lr=LR)


def levels(algorithm: str, ranks: int) -> tuple[int, ...]:
    """The levels on which `ranks` ranks run a collective: those of its own topology, where that holds so many."""
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
            else dataclasses.replace(op, requires=None)  # the sum over all ranks is not wanted here
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


def sparse(ranks: int, sizes: Sequence[int] = SIZES, k: int = 3) -> Plan:
    """Each rank sends the k largest of gradient + residual; everybody sums what all have sent."""
    tensors = layout(sizes)
    gradient, parameter, residual = (Ref(name, 0, tensors[-1].stop) for name in ("gradient", "parameter", "residual"))
    values, indices = Ref("values", 0, k * ranks), Ref("indices", 0, k * ranks)
    body = (
        *passes(tensors),
        Local(
            name="encode",
            kernel="encode_topk",
            reads=(gradient,),
            writes=(values._replace(mine=True), indices._replace(mine=True), residual),
        ),
        *(
            Collective(
                name=f"gather_{ref.buffer}",
                lane=NETWORK,
                kind="all_gather",
                postcondition="gather",
                after=("encode",),
                reads=(ref,),
                writes=(ref,),
            )
            for ref in (values, indices)
        ),
        Local(
            name="decode",
            kernel="decode_sum",
            after=("gather_values", "gather_indices"),
            reads=(values, indices),
            writes=(gradient,),
            postcondition="sparse_sum",
        ),
        Local(
            name="update",
            kernel="sgd",
            arguments={"lr": LR},
            reads=(gradient,),
            writes=(parameter,),
            requires="sparse_sum",
        ),
    )
    messages = (Buffer("values", k * ranks, "float64"), Buffer("indices", k * ranks, "int64"))
    return _plan("sparse", tensors, [Role("worker", tuple(range(ranks)), body)], messages, ["residual"])


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
    return _plan("async server", tensors, roles, more=["incoming"])


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
    return _plan("hogwild", tensors, [Role("worker", tuple(range(ranks)), body)], [shared])


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
    return _plan("easgd, round robin", tensors, roles, more=["centre", "incoming"])


def split_norms(ranks: int, elements: int = 3) -> Plan:
    """A layer a rank: each computes the norms of its own layer, all gather them, then LARS on all layers."""
    tensors = layout([elements] * ranks)
    gradient, parameter = (Ref(name, 0, tensors[-1].stop) for name in ("gradient", "parameter"))
    norms = Ref("norms", 0, 2 * ranks)
    body: tuple = (
        *passes(tensors),
        Collective(
            name="sum", lane=NETWORK, after=(f"ready:{tensors[-1].name}",), reads=(gradient,), writes=(gradient,)
        ),
        Local(
            name="norms",
            kernel="norm",
            after=("sum",),
            reads=(parameter._replace(mine=True), gradient._replace(mine=True)),
            writes=(norms._replace(mine=True),),
            requires="sum",
        ),
        Collective(
            name="gather",
            lane=NETWORK,
            kind="all_gather",
            postcondition="gather",
            after=("norms",),
            reads=(norms,),
            writes=(norms,),
        ),
        *(
            Local(
                name=f"update:{tensor.name}",
                kernel="lars",
                arguments={"lr": LR, "trust": TRUST, "decay": DECAY, "scale": 1.0 / ranks},
                after=("gather",),
                reads=(place("gradient", tensor), Ref("norms", 2 * i, 2 * i + 2)),
                writes=(place("parameter", tensor),),
                requires="sum",
            )
            for i, tensor in enumerate(tensors)
        ),
    )
    role = Role("worker", tuple(range(ranks)), body)
    return _plan("split norms", tensors, [role], [Buffer("norms", 2 * ranks, "float64")])


def sharded(ranks: int, sizes: Sequence[int] = SIZES) -> Plan:
    """Reduce-scatter in backward, each rank updates its piece, all-gather before the next forward of that layer."""
    tensors = layout(sizes)
    forward = tensors[::-1]
    body: list = [
        Need(
            name=f"forward:{tensor.name}",
            layer=tensor.name,
            reads=(place("parameter", tensor),),
            after_previous=(f"gather:{tensor.name}",),
        )
        for tensor in forward
    ]
    for ready in passes(tensors)[1:]:
        body += [
            ready,
            Collective(
                name=f"scatter:{ready.tensor}",
                lane=NETWORK,
                kind="reduce_scatter",
                postcondition="shard",
                after=(ready.name,),
                reads=ready.writes,
                writes=ready.writes,
            ),
        ]
    for tensor in forward:
        parameter = place("parameter", tensor)
        body += [
            Local(
                name=f"update:{tensor.name}",
                kernel="sgd",
                arguments={"lr": LR, "scale": 1.0 / ranks},
                after=(f"scatter:{tensor.name}",),
                reads=(place("gradient", tensor)._replace(mine=True),),
                writes=(parameter._replace(mine=True),),
                requires="shard",
            ),
            Collective(
                name=f"gather:{tensor.name}",
                lane=NETWORK,
                kind="all_gather",
                postcondition="gather",
                after=(f"update:{tensor.name}",),
                reads=(parameter,),
                writes=(parameter,),
            ),
        ]
    return _plan("sharded", tensors, [Role("worker", tuple(range(ranks)), tuple(body))])


def every_kind() -> dict[str, Plan]:
    """All of them, small, by name."""
    return {
        "synchronous": synchronous(2),
        "two_lanes": two_lanes(2),
        "uneven_roles": uneven_roles(3),
        "in_groups": in_groups(2, 2),
        "two_level": two_level(),
        "lowered": lowered(synchronous(3, algorithm="ring")),
        "repeated": repeated(2, 3),
        "sparse": sparse(3),
        "async_server": async_server(2),
        "hogwild": hogwild(2),
        "hogwild_unlocked": hogwild(2, locked=False),
        "easgd_round_robin": easgd_round_robin(3),
        "split_norms": split_norms(3),
        "sharded": sharded(3),
    }


# References: what the values must be, by plain loops.

Pull = Callable[[int, int, np.ndarray], np.ndarray]


def synchronous_reference(
    ranks: int, elements: int, turns: int, steps_a_turn: int = 1, first_rank: int = 0
) -> np.ndarray:
    parameter = start(elements)
    members = range(first_rank, first_rank + ranks)
    for turn in range(turns):
        for number in range(turn * steps_a_turn, (turn + 1) * steps_a_turn):
            parameter = parameter - LR * np.mean([pull(rank, number, parameter) for rank in members], axis=0)
    return parameter


def server_reference(order: Sequence[int], elements: int) -> np.ndarray:
    """The server's parameters after gradients from the ranks in `order`."""
    parameter = start(elements)
    held = dict.fromkeys(order, parameter)
    turns = dict.fromkeys(order, 0)
    for rank in order:
        parameter = parameter - LR * pull(rank, turns[rank], held[rank])
        held[rank] = parameter
        turns[rank] += 1
    return parameter


def easgd_reference(workers: int, elements: int, turns: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """(centre, parameters of each worker)."""
    centre = start(elements)
    parameters = [start(elements) for _ in range(workers)]
    for turn in range(turns):
        for i in range(workers):
            gradient, got = pull(i + 1, turn, parameters[i]), centre
            centre = centre + LR * RHO * (parameters[i] - centre)
            parameters[i] = parameters[i] - LR * (gradient + RHO * (parameters[i] - got))
    return centre, parameters


def lars_reference(ranks: int, elements: int, turns: int) -> np.ndarray:
    parameter = start(ranks * elements)
    for turn in range(turns):
        gradient = np.mean([pull(rank, turn, parameter) for rank in range(ranks)], axis=0)
        for i in range(ranks):
            part = slice(i * elements, (i + 1) * elements)
            w, g = parameter[part], gradient[part]
            size, steep = np.linalg.norm(w), np.linalg.norm(g)
            parameter[part] = w - LR * TRUST * size / (steep + DECAY * size) * (g + DECAY * w)
    return parameter

"""Plans in order, small ones of every kind: what the changes begin from."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from changed_plans.families import families
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.schemes import plan
from gradsync.costs import Linear
from gradsync.costs.contention import Contended
from gradsync.errors import InputError
from gradsync.plan import (
    WORLD,
    Buffer,
    Local,
    Need,
    Operation,
    Plan,
    Recv,
    RecvAny,
    Ref,
    Repeat,
    Reply,
    Role,
    Send,
    Tensor,
)
from gradsync.plan.workload import Workload
from gradsync.rounds.lowering import lowered
from tiny_plans import (
    SIZES,
    async_server,
    dealt_ratios,
    easgd_round_robin,
    exchanged,
    hogwild,
    in_groups,
    reduced_and_broadcast,
    repeated,
    sharded,
    sharded_on_axes,
    sparse,
    summed_on_axes,
    synchronous,
    two_lanes,
    two_level,
    uneven_roles,
)
from tiny_workloads import workload

COST = Contended(Linear(2.0, 0.05), 5 / 3)
NETWORK = "network"


def _load(**more: object) -> Workload:
    load = workload([8 * size for size in SIZES], [1.0, 2.0, 1.5, 0.5], forward=1.0, update=0.1, dtype="float64")
    return load.model_copy(update=more)


def _two_layers() -> Workload:
    return workload([8 * size for size in SIZES[:2]], [1.0, 2.0], forward=1.0, update=0.1, dtype="float64")


def scheme(
    name: str, ranks: int, load: Workload | None = None, wire: str = "", pto: bool = False, **how: object
) -> Plan:
    """A scheme's plan for a few layers."""
    how = {"lr": 0.125, **({} if "optimizer" in how else {"momentum": 0.5})} | how
    return plan(Scheme(name=name, wire=wire, pto=pto), load or _load(), COST, ranks, **how)  # type: ignore[arg-type]


def compressed(schedule: str, collective: str, ranks: int, optimizer: str = "sgd", **how: object) -> Plan:
    """A scheme of sparse messages, a third of the elements of each, or of what its compressor makes of them."""
    density = {} if "compressor" in how else {"density": 0.34}
    parts = {"schedule": schedule, "collective": collective} | density | how
    composed = Scheme(name=f"{schedule}_{collective}", **parts)  # type: ignore[arg-type]
    return plan(composed, _load(), COST, ranks, optimizer=optimizer, lr=0.125, momentum=0.5)


def by_level(schedule: str, wire: str = "") -> Plan:
    """A scheme whose messages are summed inside two nodes of two ranks, between them, and inside again."""
    composed = Scheme(name=f"{schedule}_by_level", schedule=schedule, collective="native_by_level", wire=wire)  # type: ignore[arg-type]
    return plan(composed, _load(), COST, 4, lr=0.125, momentum=0.5)


def _state(*names: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, 4, "float64", role="state") for name in names)


def _two(name: str, one: tuple[Operation, ...], two: tuple[Operation, ...]) -> Plan:
    roles = (Role("one", (0,), one), Role("two", (1,), two))
    return Plan(name, 2, (Tensor("l", 0, 1),), (*_state("out", "in", "extra"),), roles)


def exchange() -> Plan:
    """Both send and receive, and change what they have sent once it has left, on another lane."""

    def side(me: int) -> tuple[Operation, ...]:
        return (
            Send(name="send", lane=NETWORK, to=1 - me, reads=(Ref("out", 0, 4),), after_previous=("change",)),
            Recv(name="take", lane=NETWORK, source=1 - me, writes=(Ref("in", 0, 4),), after_previous=("change",)),
            Local(
                name="change",
                kernel="add",
                arguments={"scale": 0.5},
                reads=(Ref("in", 0, 4),),
                writes=(Ref("out", 0, 4),),
                after=("send", "take"),
            ),
        )

    return _two("exchange", side(0), side(1))


def two_channels() -> Plan:
    """Rank 0 sends on two channels from one lane; rank 1 receives on two lanes."""
    one = (
        Send(name="first", lane=NETWORK, to=1, channel="left", reads=(Ref("out", 0, 2),), tag=3),
        Send(name="second", lane=NETWORK, to=1, channel="right", reads=(Ref("out", 2, 4),), tag=3),
        Recv(name="back", lane=NETWORK, source=1, channel="left", writes=(Ref("in", 0, 4),)),
    )
    two = (
        Recv(name="right", lane="lane1", source=0, channel="right", writes=(Ref("in", 2, 4),), tag=3),
        Recv(name="left", lane="lane0", source=0, channel="left", writes=(Ref("in", 0, 2),), tag=3),
        Send(
            name="back",
            lane="lane1",
            to=0,
            channel="left",
            reads=(Ref("out", 0, 4),),
            after=("left",),
        ),
    )
    return _two("two channels", one, two)


def served_on_its_own_lane() -> Plan:
    """A server whose lane has another name than its workers', with two messages a pass."""
    body = (
        RecvAny(name="take", lane="serve", sources=(1, 2), tag=1, writes=(Ref("in", 0, 2),), after_previous=("sum",)),
        Reply(name="give", lane="serve", to="take", reads=(Ref("out", 0, 4),), tag=2),
        Local(
            name="sum",
            kernel="add",
            reads=(Ref("in", 0, 2),),
            writes=(Ref("extra", 0, 2),),
            after=("take",),
        ),
    )
    worker = (
        Send(name="push", lane=NETWORK, to=0, tag=1, reads=(Ref("out", 0, 2),)),
        Recv(name="fetch", lane=NETWORK, source=0, tag=2, writes=(Ref("in", 0, 4),)),
        Send(name="again", lane=NETWORK, to=0, tag=1, reads=(Ref("out", 2, 4),)),
        Recv(name="refetch", lane=NETWORK, source=0, tag=2, writes=(Ref("in", 0, 4),)),
    )
    roles = (Role("server", (0,), (Repeat(name="serve", body=body),)), Role("worker", (1, 2), worker))
    return Plan("served", 3, (Tensor("l", 0, 1),), _state("out", "in", "extra"), roles)


def update_between_gradients(ranks: int) -> Plan:
    """Each layer is updated as soon as its sum is there, between the gradients of others."""
    whole = synchronous(ranks)
    *body, update = whole.roles[0].body
    tensors = whole.tensors
    parts = [
        dataclasses.replace(
            update,
            name=f"update:{tensor.name}",
            after=(f"message{i}",),
            reads=(Ref("gradient", tensor.start, tensor.stop),),
            writes=(Ref("parameter", tensor.start, tensor.stop),),
        )
        for i, tensor in enumerate(tensors)
    ]
    body[0] = dataclasses.replace(body[0], after_previous=tuple(part.name for part in parts))
    # the first two while later gradients are still to come
    body[5:5] = [parts[0]]
    body[8:8] = [parts[1]]
    role = dataclasses.replace(whole.roles[0], body=(*body, *parts[2:]))
    return dataclasses.replace(whole, name="update between gradients", roles=(role,))


def sparse_by_layer(ranks: int, k: int = 2) -> Plan:
    """Each layer is encoded between the gradients, and sent and decoded by itself."""
    whole = sparse(ranks, (5, 3), k)
    role = whole.roles[0]
    need, *readies = role.body[:3]
    encode, *gathers, decode, update = role.body[3:]
    body: list[Operation] = [need]
    last: list[str] = []
    for i, (ready, tensor) in enumerate(zip(readies, whole.tensors, strict=True)):
        start = i * k * ranks
        refs = {name: Ref(name, start, start + k * ranks) for name in ("values", "indices")}
        place = {name: Ref(name, tensor.start, tensor.stop) for name in ("gradient", "residual")}
        body += [
            ready,
            dataclasses.replace(
                encode,
                name=f"encode{i}",
                reads=(place["gradient"],),
                writes=(*(ref._replace(mine=(WORLD,)) for ref in refs.values()), place["residual"]),
            ),
        ]
        for gather in gathers:
            ref = refs[gather.reads[0].buffer]
            name = f"{gather.name}{i}"
            body.append(dataclasses.replace(gather, name=name, after=(f"encode{i}",), reads=(ref,), writes=(ref,)))
        body.append(
            dataclasses.replace(
                decode,
                name=f"decode{i}",
                lane=NETWORK,
                after=(f"encode{i}",),
                reads=tuple(refs.values()),
                writes=(place["gradient"],),
            )
        )
        last.append(f"decode{i}")
    body.append(dataclasses.replace(update, after=tuple(last)))
    longer = tuple(
        dataclasses.replace(buffer, elements=2 * k * ranks) if buffer.name in ("values", "indices") else buffer
        for buffer in whole.buffers
    )
    role = dataclasses.replace(role, body=tuple(body))
    return dataclasses.replace(whole, name="sparse by layer", buffers=longer, roles=(role,))


def with_momentum(plan: Plan) -> Plan:
    """The plan with momentum in every update, of the elements that it updates."""
    roles = []
    for role in plan.roles:
        body = [
            dataclasses.replace(
                op,
                arguments={**op.arguments, "momentum": 0.5},
                writes=(*op.writes, op.writes[0]._replace(buffer="momentum")),
            )
            if isinstance(op, Local) and op.kernel == "sgd"
            else op
            for op in role.body
        ]
        roles.append(dataclasses.replace(role, body=tuple(body)))
    momentum = Buffer("momentum", plan.tensors[-1].stop, "float64", role="momentum")
    return dataclasses.replace(plan, buffers=(*plan.buffers, momentum), roles=tuple(roles))


def sharded_model(ranks: int) -> Plan:
    """`sharded` with momentum, whose forward waits for the whole model."""
    plan = with_momentum(sharded(ranks))
    (role,) = plan.roles
    needs = [op for op in role.body if isinstance(op, Need)]
    last = tuple(name for op in needs for name in op.after_previous)
    whole = Need(name="forward", reads=(Ref("parameter", 0, plan.tensors[-1].stop),), after_previous=last)
    body = (whole, *(op for op in role.body if not isinstance(op, Need)))
    return dataclasses.replace(plan, name="sharded model", roles=(dataclasses.replace(role, body=body),))


def with_shards(plan: Plan) -> Plan:
    """The plan with momentum of which a rank has the pieces alone that it updates, those of each tensor."""
    ends = tuple(tensor.stop for tensor in plan.tensors)
    buffers = tuple(
        dataclasses.replace(buffer, mine=(WORLD,), ends=ends) if buffer.role == "momentum" else buffer
        for buffer in plan.buffers
    )
    return dataclasses.replace(plan, name="shards", buffers=buffers)


def bases() -> dict[str, Callable[[], Plan]]:
    """Name -> what makes the plan."""
    statistics = _load(statistics=3)
    makers: dict[str, Callable[[], Plan]] = {
        "synchronous 2": lambda: synchronous(2),
        "synchronous 3": lambda: synchronous(3),
        "ring 3": lambda: synchronous(3, algorithm="ring"),
        "ring 2 spelled out": lambda: lowered(synchronous(2, (5, 3), algorithm="ring")),
        "central server 3 spelled out": lambda: lowered(synchronous(3, (5, 3), algorithm="ps_central")),
        "bml 4": lambda: synchronous(4, algorithm="bml", shape=(2, 2)),
        "two lanes 2": lambda: two_lanes(2),
        "uneven roles 2": lambda: uneven_roles(2),
        "uneven roles 3 native": lambda: uneven_roles(3, "native"),
        "in groups": lambda: in_groups(2, 2),
        "two levels": two_level,
        "summed on axes": lambda: summed_on_axes(2, 2),
        "sharded on axes": lambda: sharded_on_axes(2, 2),
        "reduced and broadcast": lambda: reduced_and_broadcast(2, "chain"),
        "exchanged": lambda: exchanged(3, "pairwise"),
        "repeated": lambda: repeated(2, 2),
        "sparse 2": lambda: sparse(2),
        "sparse 3": lambda: sparse(3),
        "sparse by layer 2": lambda: sparse_by_layer(2),
        "server": lambda: async_server(2),
        "hogwild": lambda: hogwild(2),
        "easgd 1": lambda: easgd_round_robin(1),
        "easgd 2": lambda: easgd_round_robin(2),
        "dealt ratios": lambda: dealt_ratios(2),
        "sharded 2": lambda: sharded(2),
        "sharded 4": lambda: sharded(4),
        "sharded model 3": lambda: sharded_model(3),
        "shards 3": lambda: with_shards(sharded_model(3)),
        "sparse with momentum": lambda: with_momentum(sparse(2)),
        "exchange": exchange,
        "two channels": two_channels,
        "served": served_on_its_own_lane,
        "update between gradients": lambda: update_between_gradients(2),
        "wfbp": lambda: scheme("wfbp", 2),
        "wfbp accumulated": lambda: scheme("wfbp", 2, accumulate=2),
        "wfbp clipped": lambda: scheme("wfbp", 2, clip_norm=0.5),
        "clipped by pieces": lambda: scheme("pipelined", 3, clip_norm=0.5),
        "clipped as in dear": lambda: scheme("dear", 2, clip_norm=0.5),
        "mgwfbp with statistics": lambda: scheme("mgwfbp", 3, statistics),
        "mgwfbp accumulated with statistics": lambda: scheme("mgwfbp", 2, statistics, accumulate=2, clip_norm=0.5),
        "mgwfbp narrow": lambda: scheme("mgwfbp", 2, None, "float32"),
        "mgwfbp scaled": lambda: scheme("mgwfbp", 2, None, "float32", loss_scaling=True, momentum=0.0),
        "adam scaled": lambda: scheme("mgwfbp", 2, optimizer="adam", loss_scaling=True),
        "scaled by pieces": lambda: scheme("pipelined", 3, loss_scaling=True, accumulate=2),
        "scaled as in dear": lambda: scheme("dear", 2, loss_scaling=True, clip_norm=0.5),
        "scaled by message": lambda: scheme("priority", 2, optimizer="adamw", loss_scaling=True),
        "kway": lambda: scheme("kway", 2),
        "adam": lambda: scheme("mgwfbp", 2, optimizer="adam", weight_decay=0.1),
        "adamw by pieces": lambda: scheme("pipelined", 2, optimizer="adamw"),
        "lars": lambda: scheme("mgwfbp", 2, optimizer="lars", weight_decay=0.1),
        "lars by pto": lambda: scheme("mgwfbp", 3, optimizer="lars", pto=True),
        "lamb by pto": lambda: scheme("wfbp", 2, optimizer="lamb", weight_decay=0.1, pto=True),
        "lars by pto, more ranks than layers": lambda: scheme("wfbp", 4, _two_layers(), optimizer="lars", pto=True),
        "lars by pto between nodes": lambda: compressed("wfbp", "hitopk", 4, optimizer="lars", pto=True),
        "striped": lambda: scheme("striped", 3, momentum=0.0),
        "by level": lambda: by_level("wfbp"),
        "by level, narrow": lambda: by_level("mgwfbp", "float32"),
        "ascwfbp": lambda: scheme("ascwfbp", 2),
        "sparse by scheme": lambda: compressed("wfbp", "allgather_sparse", 2),
        "sparse without feedback": lambda: compressed("mgwfbp", "allgather_sparse", 2, error_feedback=False),
        "sparse between nodes": lambda: compressed("wfbp", "hitopk", 4),
        "sparse between nodes, updated by message": lambda: compressed("mgwfbp", "hitopk", 4, update="by_message"),
        **families(),
    }
    return makers


def every(most_ranks: int = 4) -> dict[str, Plan]:
    """All of them, made."""
    plans = {}
    for name, make in bases().items():
        try:
            plan = make()
        except InputError as error:
            raise AssertionError(f"{name}: {error}") from None
        if plan.ranks <= most_ranks:
            plans[name] = plan
    return plans

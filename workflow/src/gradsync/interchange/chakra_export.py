"""A plan as Chakra traces, one per rank, which ASTRA-sim runs: computation with its seconds, messages with their bytes.

Nodes depend on what their operation waits for, and on the operation before on the same lane. An operation has the same
id on all ranks, by which ASTRA-sim brings the ranks of a collective together. `comm_size` is what a rank puts in, so of
an all-gather its own piece. Chakra counts whole microseconds: ends are rounded, so that a sum of many is right to one;
attributes whose names begin with `gradsync_` have the seconds themselves. The metadata has the whole workload, which
`chakra_plans.py` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gradsync.collectives import NATIVE
from gradsync.errors import InputError
from gradsync.interchange import chakra_file
from gradsync.interchange.chakra_schema import COLLECTIVES, NODE_TYPES, VERSION, Attribute, Metadata, Node
from gradsync.plan import DTYPE_BYTES, WORLD, Collective, Group, Local, Need, Plan, Ready, Recv, Send
from gradsync.plan.workload import Workload

OWN = "gradsync_"
MICROS = 1e6
REPLAYED = ("broadcast", "reduce")  # what ASTRA-sim has no algorithm for
Seconds = Callable[[int, Any], float]
"""What computation of a rank takes: (rank, operation) -> seconds, as `NetworkClock.local` gives it."""


class Exported(NamedTuple):
    """The content of each rank's file, the groups of ranks by their number, and what is lost, each in words."""

    files: list[bytes]
    groups: dict[str, list[int]]
    lost: list[str]


def export(plan: Plan, workload: Workload, seconds: Seconds, turns: int) -> Exported:
    """The traces of so many turns of the loop; raises InputError for a plan that no such trace can hold."""
    for role in plan.roles:
        for op in role.flat:
            if not isinstance(op, Need | Ready | Local | Collective | Send | Recv):
                raise InputError(
                    f"plan {plan.name!r} can't be exported as Chakra traces: {op.name!r} is a {op.verb}, and a trace "
                    "has no message whose sender is not known beforehand, and no memory that ranks share"
                )
    groups = _groups(plan)
    numbers = {name: index for index, name in enumerate(dict.fromkeys(op.name for r in plan.roles for op in r.flat))}
    files = []
    for rank in range(plan.ranks):
        nodes = _Rank(plan, rank, seconds, numbers, groups).nodes(turns)
        files.append(chakra_file.to_bytes(_metadata(plan, workload, rank, turns), nodes))
    return Exported(files, {str(number): list(group) for group, number in groups.items()}, _lost(plan))


def _groups(plan: Plan) -> dict[Group, int]:
    """The groups of collectives that are not all ranks -> their numbers, from 1 on."""
    used = [
        group
        for role in plan.roles
        for op in role.flat
        if isinstance(op, Collective)
        for group in plan.groups(op)
        if len(group) < plan.ranks
    ]
    return {group: number for number, group in enumerate(dict.fromkeys(used), 1)}


class _Rank:
    """The nodes of one rank; `done` is where its computation would end by itself, in seconds."""

    def __init__(
        self, plan: Plan, rank: int, seconds: Seconds, numbers: dict[str, int], groups: dict[Group, int]
    ) -> None:
        self.plan, self.rank, self.seconds, self.numbers, self.groups = plan, rank, seconds, numbers, groups
        self.done = 0.0

    def nodes(self, turns: int) -> Iterator[Any]:
        """Every operation of every turn, in launch order."""
        body = self.plan.role_of[self.rank].flat
        last: dict[str, int] = {}  # lane -> the node before
        for turn in range(turns):
            for op in body:
                node = Node(id=self._id(op.name, turn), name=op.name if turns == 1 else f"{op.name}@{turn}")
                waits = {self._id(name, turn) for name in op.after}
                waits |= {self._id(name, turn - 1) for name in op.after_previous if turn}
                node.data_deps.extend(sorted(waits))
                if last.get(op.lane, node.id) not in {*waits, node.id}:
                    node.ctrl_deps.append(last[op.lane])
                last[op.lane] = node.id
                self._fill(node, op)
                node.attr.append(Attribute(name=f"{OWN}verb", string_val=op.verb))
                node.attr.append(Attribute(name=f"{OWN}turn", int64_val=turn))
                yield node

    def _id(self, name: str, turn: int) -> int:
        return 1 + turn * len(self.numbers) + self.numbers[name]

    def _fill(self, node: Any, op: Any) -> None:
        """What the operation is: its kind, time or bytes."""
        add = node.attr.append
        add(Attribute(name="is_cpu_op", bool_val=False))
        if isinstance(op, Need | Ready | Local):
            node.type = NODE_TYPES.index("COMP_NODE")
            spent = self.seconds(self.rank, op)
            begun, self.done = round(self.done * MICROS), self.done + spent
            node.duration_micros = round(self.done * MICROS) - begun
            add(Attribute(name=f"{OWN}seconds", double_val=spent))
            self._describe(node, op)
            return
        if isinstance(op, Collective):
            node.type = NODE_TYPES.index("COMM_COLL_NODE")
            group = self.plan.group(op, self.rank)
            size = self.plan.bytes_of(op.writes)
            if op.kind == "all_gather":
                size //= len(group)
            add(Attribute(name="comm_type", int64_val=COLLECTIVES.index(op.kind.upper())))
            add(Attribute(name="comm_size", int64_val=size))
            if group in self.groups:
                add(Attribute(name="pg_name", string_val=str(self.groups[group])))
            return
        sends = isinstance(op, Send)
        node.type = NODE_TYPES.index("COMM_SEND_NODE" if sends else "COMM_RECV_NODE")
        add(Attribute(name="comm_size", int64_val=self.plan.bytes_of(op.reads if sends else op.writes)))
        add(Attribute(name="comm_src", int32_val=self.rank if sends else op.source))
        add(Attribute(name="comm_dst", int32_val=op.to if sends else self.rank))
        add(Attribute(name="comm_tag", int32_val=op.tag))

    def _describe(self, node: Any, op: Any) -> None:
        """What was computed: whose forward, whose gradient with its bytes, which kernel."""
        if isinstance(op, Ready) and op.tensor is not None:
            tensor = self.plan.tensor[op.tensor]
            dtype = self.plan.buffer[self.plan.holding("gradient") or op.writes[0].buffer].dtype
            size = (tensor.stop - tensor.start) * DTYPE_BYTES[dtype]
            node.attr.append(Attribute(name="tensor_size", uint64_val=size))
        name = op.tensor if isinstance(op, Ready) else op.layer if isinstance(op, Need) else op.kernel
        if name is not None:
            node.attr.append(Attribute(name=f"{OWN}of", string_val=name))


def _metadata(plan: Plan, workload: Workload, rank: int, turns: int) -> Any:
    told = Metadata(version=VERSION)
    words = {
        "schema": "gradsync",
        f"{OWN}plan": plan.name,
        f"{OWN}digest": plan.digest,
        f"{OWN}workload": workload.to_json(),
    }
    for name, text in words.items():
        told.attr.append(Attribute(name=name, string_val=text))
    for name, number in {"rank": rank, "ranks": plan.ranks, "turns": turns, "iterations": plan.iterations}.items():
        told.attr.append(Attribute(name=f"{OWN}{name}", int64_val=number))
    return told


def _lost(plan: Plan) -> list[str]:
    messages = [op for role in plan.roles for op in role.flat if isinstance(op, Collective)]
    lost = []
    if algorithms := sorted({op.algorithm for op in messages} - {NATIVE}):
        lost.append(f"collective {', '.join(algorithms)} is lost: ASTRA-sim sums by what its system file names")
    if kinds := sorted({op.kind for op in messages} & {*REPLAYED}):
        lost.append(f"the time of each {', '.join(kinds)} is lost: ASTRA-sim has no algorithm for it")
    if any(op.over != WORLD and not op.ranks for op in messages):
        lost.append("axes are lost: their groups of ranks are in the file of groups, by number")
    return lost

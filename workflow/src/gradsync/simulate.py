"""Time a plan on a workload and a network: plan + costs -> trace.

Shared links are shared (see `progress.py`), so no simulated time lies below `lower_bound_seconds`. With an
interference, computation and messages slow one another down too (see `interfering.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradsync.costs import Network
from gradsync.costs.interference import Interference
from gradsync.errors import InputError
from gradsync.interfering import InterferingProgress
from gradsync.plan import Collective, Local, Need, Plan, Ready
from gradsync.progress import Clock, Cost, Factors, Progress
from gradsync.trace import Span, Trace
from gradsync.workload import Workload

UPDATES = ("sgd", "sgd_scaled", "lars", "elastic_worker")  # kernels that take the workload's update_seconds together
MOST_TURNS = 48
STEADY = 1e-9  # relative change of the period


class NetworkClock(Clock):
    """Durations from one workload a rank and the network's costs."""

    def __init__(
        self,
        plan: Plan,
        workloads: Mapping[int, Workload],
        network: Network,
        add_seconds_per_byte: float,
        interference: Interference | None = None,
    ):
        self.plan, self.network, self.gamma, self.interference = plan, network, add_seconds_per_byte, interference
        distinct = {id(workload): workload for workload in workloads.values()}
        tables = {key: self._table(workload) for key, workload in distinct.items()}
        self.tables = {rank: tables[id(workload)] for rank, workload in workloads.items()}
        self.messages: dict[int, Cost] = {}
        self.slowdowns: dict[int, Factors] = {}

    def _table(self, workload: Workload) -> tuple[Workload, dict[str, float], dict[str, float]]:
        backward = {layer.name: layer.backward_seconds for layer in workload.layers}
        forward = {layer.name: layer.forward_seconds for layer in workload.layers if layer.forward_seconds is not None}
        for tensor in self.plan.tensors:
            if tensor.name not in backward:
                raise InputError(
                    f"workload {workload.name!r} has no layer {tensor.name!r}, which plan {self.plan.name!r} sends: "
                    "plan again from this workload"
                )
        return workload, forward, backward

    def local(self, rank: int, operation: Any) -> float:
        """Forward, backward and update seconds of the workload; adding costs gamma a byte; the rest nothing."""
        workload, forward, backward = self.tables[rank]
        if isinstance(operation, Ready):
            return backward[operation.tensor]
        if isinstance(operation, Need):
            if operation.layer is None:
                return workload.forward_seconds
            if operation.layer not in forward:
                raise InputError(f"workload {workload.name!r}: layer {operation.layer!r} needs forward_seconds")
            return forward[operation.layer]
        if isinstance(operation, Local) and operation.kernel in UPDATES:
            elements = sum(
                (ref.stop - ref.start) / (self.plan.ranks if ref.mine else 1)
                for ref in operation.writes
                if ref.buffer == "parameter"
            )
            return workload.update_seconds * elements / self.plan.tensors[-1].stop
        if isinstance(operation, Local) and operation.kernel == "add":
            return self.gamma * self.plan.bytes_of(operation.writes)
        return 0.0

    def message(self, operation: Any) -> Cost:
        """The network's cost of this kind of message, split at its start-up."""
        key = id(operation)  # of the plan, which lives as long; roles may use a name for messages of different sizes
        cost = self.messages.get(key)
        if cost is None:
            model = self.network.of(operation.kind if isinstance(operation, Collective) else "send")
            size = self._bytes(operation)
            startup = model.startup_seconds(size)
            cost = self.messages[key] = Cost(startup, model.seconds(size) - startup)
        return cost

    def handover(self) -> float:
        """As measured with the interference."""
        return self.interference.handover_seconds if self.interference else 0.0

    def factors(self, operation: Any) -> Factors:
        """What a message of this size and computation do to one another."""
        if self.interference is None:
            return Factors(1.0, 1.0)
        key = id(operation)
        found = self.slowdowns.get(key)
        if found is None:
            found = self.slowdowns[key] = Factors(*self.interference.factors(self._bytes(operation)))
        return found

    def _bytes(self, operation: Any) -> int:
        return self.plan.bytes_of(operation.writes if isinstance(operation, Collective) else operation.reads)


def simulate(
    plan: Plan,
    workload: Workload | Mapping[int, Workload],
    network: Network,
    *,
    turns: int | None = None,
    add_seconds_per_byte: float = 0.0,
    interference: Interference | None = None,
) -> Trace:
    """Run the plan on simulated time; without `turns` until the period is steady.

    A plan whose ranks all do the same on equal workloads is simulated on rank 0 alone. Raises InputError where
    workload or network lack what the plan needs.
    """
    same = isinstance(workload, Workload)
    workloads = dict.fromkeys(range(plan.ranks), workload) if isinstance(workload, Workload) else dict(workload)
    missing = set(range(plan.ranks)) - set(workloads)
    if missing:
        raise InputError(f"simulate {plan.name!r}: no workload for rank {min(missing)}")
    clock = NetworkClock(plan, workloads, network, add_seconds_per_byte, interference)
    ranks = (0,) if plan.symmetric and same else None
    count = turns or 3
    while True:
        progress = Progress if interference is None else InterferingProgress
        outcome = progress(plan, count, clock, ranks).run()
        if outcome.stuck:
            raise InputError(f"simulate {plan.name!r}: the plan is stuck: check it first")
        trace = _trace(plan, outcome.events, count)
        if turns:
            return trace
        starts = trace.turn_starts(plan.pace)
        last, before = starts[-1] - starts[-2], starts[-2] - starts[-3]
        if abs(last - before) <= STEADY * max(last, 1e-12) or count >= MOST_TURNS:
            return trace
        count = min(2 * count, MOST_TURNS)


def _trace(plan: Plan, events: list[Any], turns: int) -> Trace:
    described = {
        role.name: [(op.name, op.verb, op.lane, plan.bytes_of(op.writes or op.reads)) for op in role.flat]
        for role in plan.roles
    }
    rows = {rank: described[role.name] for rank, role in plan.role_of.items()}
    spans = []
    for rank, turn, index, start, end, source in events:
        name, verb, lane, size = rows[rank][index]
        spans.append(Span(rank, turn, name, verb, lane, start, end, size, source))
    return Trace(plan.name, "simulated", turns, tuple(spans), plan.provenance)


def lower_bound_seconds(workload: Workload, network: Network) -> float:
    """No synchronous iteration is shorter: max(t_f + t_b, first ready + bytes on the wire / link rate) + update."""
    cost = network.of("all_reduce")
    total = workload.bytes
    wire = cost.seconds(total) - cost.startup_seconds(total)
    computed = workload.forward_seconds + workload.backward_seconds
    return max(computed, float(workload.ready_seconds()[0]) + wire) + workload.update_seconds

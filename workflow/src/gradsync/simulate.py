"""Time a plan on a workload and a network: plan + costs -> trace.

Shared links are shared (see `sharing.py`), so no simulated time lies below `lower_bound_seconds`. With an
interference, computation and messages slow one another down too (see `interfering.py`).

Where a topology is given, collectives that are described by rounds are spelled out for all ranks and every message goes
over the links of its route; ranks are no longer in step, and alpha counts a message: their bound is
`links_lower_bound_seconds`. That is for few ranks; of many, `flow_level.py` gives the cost of a collective as one
message.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from gradsync import collectives
from gradsync.clocks import LinksClock, NetworkClock
from gradsync.collectives import NATIVE
from gradsync.costs import Network
from gradsync.costs.contention import capacity
from gradsync.costs.interference import Interference
from gradsync.errors import InputError
from gradsync.interfering import InterferingProgress
from gradsync.lowering import lowered
from gradsync.plan import Collective, Local, Plan, Send
from gradsync.progress import Event, Progress
from gradsync.steady import steady
from gradsync.topologies import NO_LINK, Speeds, Topology
from gradsync.trace import Span, Trace
from gradsync.workload import Workload

MOST_TURNS = 48


def simulate(
    plan: Plan,
    workload: Workload | Mapping[int, Workload],
    network: Network,
    *,
    turns: int | None = None,
    add_seconds_per_byte: float = 0.0,
    interference: Interference | None = None,
    topology: Topology | None = None,
    speeds: Speeds | None = None,
) -> Trace:
    """Run the plan on simulated time; without `turns` until it repeats itself (`steady.py`), MOST_TURNS at most.

    The trace says whether it does, and its times are means over a whole period.

    A plan whose ranks all do the same on equal workloads is simulated on rank 0 alone. With `topology` and `speeds`
    every message goes over its links, and `network` is asked for native collectives only. Raises InputError where
    workload, network or speeds lack what the plan needs, and where the topology can't hold its ranks.
    """
    if (topology is None) != (speeds is None):
        raise InputError(f"simulate {plan.name!r}: a topology and the speeds of its links go together: give both")
    if topology is not None:
        plan = lowered(plan)
    same = isinstance(workload, Workload)
    workloads = dict.fromkeys(range(plan.ranks), workload) if isinstance(workload, Workload) else dict(workload)
    missing = set(range(plan.ranks)) - set(workloads)
    if missing:
        raise InputError(f"simulate {plan.name!r}: no workload for rank {min(missing)}")
    costs = plan, workloads, network, add_seconds_per_byte, interference
    clock = LinksClock(*costs, topology, speeds) if topology and speeds else NetworkClock(*costs)
    ranks = (0,) if plan.symmetric and same else None
    count = turns or 3
    while True:
        progress = Progress if interference is None else InterferingProgress
        outcome = progress(plan, count, clock, ranks).run()
        if outcome.stuck:
            raise InputError(f"simulate {plan.name!r}: the plan is stuck: check it first")
        trace = _trace(plan, outcome.events, count)
        found = steady(outcome.events, trace.turn_starts(plan.pace), _first_through(plan, outcome.events))
        if turns or found.reached or count >= MOST_TURNS:
            return dataclasses.replace(trace, steady=found.reached, period=found.period, end_turn=found.end)
        count = min(2 * count, MOST_TURNS)


def _first_through(plan: Plan, events: list[Event]) -> float:
    """When the first rank had done all its turns."""
    last: dict[int, float] = {}
    for event in events:
        last[event.rank] = max(event.end, last.get(event.rank, 0.0))
    return min(end for rank, end in last.items() if not plan.role_of[rank].until_stopped)


def _trace(plan: Plan, events: list[Event], turns: int) -> Trace:
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


def lower_bound_seconds(workload: Workload, network: Network, busiest: float = 1.0) -> float:
    """No synchronous iteration is shorter: max(t_f + t_b, first ready + bytes on the wire / link rate) + update.

    The link's rate is the best of a message alone, whatever its size, times the capacity of the all-reduce's cost
    (`costs/contention.py`); the `busiest` rank's link carries this part of all bytes (`busiest_part`).
    """
    cost = network.of("all_reduce")
    wire = busiest * cost.least_transfer_seconds(workload.bytes) / capacity(cost)
    computed = workload.forward_seconds + workload.backward_seconds
    return max(computed, float(workload.ready_seconds()[0]) + wire) + workload.update_seconds


def largest_speedup(workload: Workload, ranks: int, bytes_per_second: float) -> float:
    """S_max over one rank, where each has one link of that rate (ASC-WFBP, Eq. 41 to 43).

    An all-reduce sends at least 2 (P - 1) / P of the gradients, which overlaps with the backward pass and no more. The
    paper leaves (P - 1) / P out.
    """
    wire = 2 * (ranks - 1) / ranks * workload.bytes / bytes_per_second
    alone = workload.forward_seconds + workload.backward_seconds
    return ranks * alone / (alone + max(0.0, wire - workload.backward_seconds))


def clipping_seconds(plan: Plan, workload: Workload) -> float:
    """What the norm takes between the last message and the update, where the plan clips."""
    clips = any(isinstance(op, Local) and op.kernel == "norm" for op in plan.roles[0].flat)
    return workload.norm_seconds if clips else 0.0


def busiest_part(plan: Plan) -> float:
    """The part of a turn's transfers that some rank's way must carry; below 1 where messages go to servers in turn.

    For plans whose ranks all have the same collectives.
    """
    sums = [op for op in plan.roles[0].flat if isinstance(op, Collective)]
    if not sums or any(op.algorithm == NATIVE for op in sums):
        return 1.0
    sizes = [plan.bytes_of(op.writes) for op in sums]
    phases = (collectives.phases(op.algorithm, op.shape or (plan.ranks,), op.root) for op in sums)
    carried = sum(size * share * parts for size, each in zip(sizes, phases, strict=True) for share, parts in each)
    return float(np.max(carried)) / sum(sizes)


def links_lower_bound_seconds(plan: Plan, workload: Workload, topology: Topology, speeds: Speeds) -> float:
    """The same where messages are spelled out over links: those of several servers, say, use different ones at once.

    What a rank sends leaves on its own links between its first ready gradient, of the last micro-batch, and its update;
    no other link is busy for longer than an iteration.
    """
    earlier, after = plan.passes - 1, clipping_seconds(plan, workload) + workload.update_seconds
    plan = lowered(plan)
    sends = [
        (rank, op.to, op.rail, plan.bytes_of(op.reads))
        for rank, role in plan.role_of.items()
        for op in role.flat
        if isinstance(op, Send)
    ]
    source, destination, rail, size = np.array(sends, np.int64).reshape(-1, 4).T
    route = topology.route(source, destination, rail)  # (sends, hops)
    used = route != NO_LINK
    own = used & (used.cumsum(axis=1) == 1)  # the first link of each send
    sizes, (bandwidth, _) = np.broadcast_to(size[:, None], route.shape), speeds.of(topology)
    wire, busy = (
        float((np.bincount(route[at], sizes[at], len(bandwidth)) / bandwidth).max(initial=0.0)) for at in (own, used)
    )
    computed = workload.forward_seconds + workload.backward_seconds
    first_ready = float(workload.ready_seconds()[0])
    return max(earlier * computed + max(computed, first_ready + wire) + after, busy)

"""What a plan's iteration needs whatever its messages cost: computation, and when messages can travel at all.

Only times that a workload holds are counted: forward, backward, norm and update. Other local work counts for nothing,
so that what follows from this holds whatever it costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from gradsync.costs import Network
from gradsync.engine.clocks import NORMS, UPDATES, NetworkClock
from gradsync.plan import COMPUTE, WORLD, Collective, Local, Plan, Ready, Recv, Role
from gradsync.plan import Need as Forward
from gradsync.plan.role_graph import RoleGraph
from gradsync.plan.workload import Workload

MESSAGES = ("send", "recv", "collective")


class Need(NamedTuple):
    """Of a rank, in seconds.

    `computation` of an iteration; `ready` until its first gradient of the last micro-batch. `awaited` are the places of
    the messages that wait for such a gradient and that the next iteration waits for; `after` is what is computed
    between any of them and the next iteration.
    """

    computation: float
    ready: float
    after: float
    awaited: frozenset[int]


def needs(plan: Plan, workload: Workload | Mapping[int, Workload]) -> dict[int, Need]:
    """By rank; raises InputError if the workload lacks a layer of the plan."""
    workloads = dict.fromkeys(plan.role_of, workload) if isinstance(workload, Workload) else workload
    clock = NetworkClock(plan, workloads, Network({}), 0.0)
    need_of: dict[tuple[str, int], Need] = {}
    for rank, role in plan.role_of.items():
        key = role.name, id(workloads[rank])
        if key not in need_of:
            seconds = [clock.local(rank, op) if _is_of_workload(op) else 0.0 for op in role.flat]
            need_of[key] = _need(role, seconds)
    return {rank: need_of[role.name, id(workloads[rank])] for rank, role in plan.role_of.items()}


def in_step(plan: Plan) -> list[int]:
    """The ranks that take a turn for each iteration: those that wait for the rank of its pace, and it for them."""
    collectives = [op for op in plan.roles[0].flat if isinstance(op, Collective)]
    if len(plan.roles) == 1 and any(op.over == WORLD and not op.ranks for op in collectives):
        return list(range(plan.ranks))
    before: dict[int, set[int]] = defaultdict(set)
    after: dict[int, set[int]] = defaultdict(set)
    for rank, role in plan.role_of.items():
        for op in () if role.until_stopped else role.flat:
            if isinstance(op, Recv):
                before[rank].add(op.source)
                after[op.source].add(rank)
            elif isinstance(op, Collective):
                group = plan.group(op, rank)
                before[rank].update(group)
                after[rank].update(group)

    def reached(neighbours: dict[int, set[int]]) -> set[int]:
        seen, waiting = {plan.pace}, [plan.pace]
        while waiting:
            new = neighbours[waiting.pop()] - seen
            seen |= new
            waiting += new
        return seen

    return sorted(reached(before) & reached(after))


def _is_of_workload(op: Any) -> bool:
    """Whether the seconds of an operation are times of the workload."""
    return isinstance(op, Forward | Ready) or (isinstance(op, Local) and op.kernel in (*UPDATES, *NORMS))


def _need(role: Role, seconds: list[float]) -> Need:
    graph = RoleGraph(role.flat)
    lane_seconds: dict[str, float] = defaultdict(float)
    for op, each in zip(role.flat, seconds, strict=True):
        lane_seconds[op.lane] += each
    of_last_pass = [isinstance(op, Ready) and role.pass_of[op.name] == role.passes - 1 for op in role.flat]
    ready = 0.0
    for op, each, is_of_last_pass in zip(role.flat, seconds, of_last_pass, strict=True):
        ready += each if op.lane == COMPUTE else 0.0
        if is_of_last_pass:
            break
    order = _order(graph)
    waits = list(of_last_pass)
    for i in order:
        for j in (*graph.same[i], *graph.same_post[i]):
            waits[j] = waits[j] or waits[i]
    followed = _followed_by(graph, seconds, order)
    messages = [i for i, op in enumerate(role.flat) if op.verb in MESSAGES and waits[i] and followed[i] >= 0.0]
    after = min((followed[i] for i in messages), default=0.0)
    return Need(max(lane_seconds.values(), default=0.0), ready, after, frozenset(messages))


def _order(graph: RoleGraph) -> list[int]:
    """Every operation after those of its turn that it waits for."""
    left = list(graph.waits_first)
    order = [i for i, count in enumerate(left) if not count]
    for i in order:
        for j in (*graph.same[i], *graph.same_post[i]):
            left[j] -= 1
            if not left[j]:
                order.append(j)
    return order


def _followed_by(graph: RoleGraph, seconds: list[float], order: list[int]) -> list[float]:
    """Seconds computed between the end of an operation and the next turn's first, if that waits for it; else -1."""
    first = next((i for i, lane in enumerate(graph.lane) if lane == COMPUTE), -1)
    done, begun = [-1.0] * len(order), [-1.0] * len(order)  # from its end; from its beginning
    for i in reversed(order):
        # the lane of computation is in order, over turns too
        ends = 0.0 if graph.lane[i] == COMPUTE or first in graph.next[i] else -1.0
        done[i] = max([ends, *(begun[j] for j in graph.same[i])])
        posted = max([0.0 if first in graph.next_post[i] else -1.0, *(begun[j] for j in graph.same_post[i])])
        begun[i] = max(posted, seconds[i] + done[i] if done[i] >= 0.0 else -1.0)
    return done

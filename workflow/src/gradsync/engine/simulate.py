"""Time a plan on a workload and a network: plan + costs -> trace.

Messages share links (see `contention.py`), so no simulated time lies below what computation and links allow
(`bounds.py`). With an interference, computation and messages slow one another down too (see `interference.py`).

With a topology, collectives that are described by rounds are spelled out for all ranks and every message goes over the
links of its route; ranks are no longer in step, and alpha counts per message. That is for few ranks; for many,
`rounds/flow_level.py` gives the cost of a collective as one message.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

from gradsync.costs import Network
from gradsync.costs.interference import Interference
from gradsync.engine.clocks import LinksClock, NetworkClock
from gradsync.engine.interference import InterferenceProgress
from gradsync.engine.progress import Event, Progress
from gradsync.engine.steady import Steady, steady
from gradsync.engine.waiting import stamps, waited, with_waits
from gradsync.errors import InputError
from gradsync.plan import Plan
from gradsync.plan.trace import Span, Trace
from gradsync.plan.workload import Workload
from gradsync.rounds.lowering import lowered
from gradsync.topologies import Speeds, Topology

TURNS = (3, 4, 6, 8, 12, 16, 24, 32, 48)  # after each of these numbers of turns: do they repeat themselves?
MOST_TURNS = TURNS[-1]
MOST_EVENTS = 100_000  # of loops that are longer, a quarter of the turns: seconds, not minutes


def simulate(
    plan: Plan,
    workload: Workload | Mapping[int, Workload],
    network: Network,
    *,
    turns: int | None = None,
    add_seconds_per_byte: float | None = None,
    interference: Interference | None = None,
    topology: Topology | None = None,
    speeds: Speeds | None = None,
) -> Trace:
    """Run the plan on simulated time; without `turns` until it repeats itself (`steady.py`).

    That is for MOST_TURNS at most, and for a quarter of them if these have more than MOST_EVENTS.
    The trace says whether it does, and its times are means over a whole period.

    A plan whose ranks all do the same on equal workloads is simulated on rank 0 alone. With `topology` and `speeds`
    every message goes over its links, and `network` gives the costs of native collectives only. Raises InputError if
    workload, network or speeds lack what the plan needs, or if the topology can't hold its ranks.
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
    progress = (Progress if interference is None else InterferenceProgress)(plan, turns or MOST_TURNS, clock, ranks)
    end_state = None if turns else _until_steady(progress)
    outcome = progress.run()
    if outcome.stuck:
        raise InputError(f"simulate {plan.name!r}: the plan is stuck: check it first")
    if end_state is None or not end_state.reached:
        end_state = steady(outcome.events, _turn_starts(plan, outcome.events), _first_through(plan, outcome.events))
    trace = _trace(plan, outcome.events, progress.turns)
    return dataclasses.replace(trace, steady=end_state.reached, period=end_state.period, end_turn=end_state.end)


def _until_steady(progress: Progress) -> Steady:
    """Go on until it repeats itself, or for as many turns as it may take."""
    for turns in TURNS:
        now = progress.run_until_through(turns)
        events = progress.so_far()
        end_state = steady(events, _turn_starts(progress.plan, events), now)
        if end_state.reached or (turns >= MOST_TURNS // 4 and len(events) > MOST_EVENTS):
            break
    return end_state


def _turn_starts(plan: Plan, events: list[Event]) -> list[float]:
    """When each turn begins of the rank that sets the pace."""
    of_pace = [event for event in events if event.rank == plan.pace]
    return Trace(plan.name, "simulated", 0, tuple(_spans(plan, of_pace))).turn_starts(plan.pace)


def _first_through(plan: Plan, events: list[Event]) -> float:
    """When the first rank had done all its turns."""
    last: dict[int, float] = {}
    for event in events:
        last[event.rank] = max(event.end, last.get(event.rank, 0.0))
    return min(end for rank, end in last.items() if not plan.role_of[rank].until_stopped)


def _trace(plan: Plan, events: list[Event], turns: int) -> Trace:
    spans = _with_waits(plan, _spans(plan, events), turns)
    return Trace(plan.name, "simulated", turns, spans, plan.provenance, iterations=plan.iterations)


def _spans(plan: Plan, events: list[Event]) -> list[Span]:
    ranks = {event.rank for event in events}
    of_role = {
        role.name: [(op.name, op.verb, op.lane, plan.bytes_of(op.writes or op.reads)) for op in role.flat]
        for role in {plan.role_of[rank].name: plan.role_of[rank] for rank in ranks}.values()
    }
    operations = {rank: of_role[plan.role_of[rank].name] for rank in ranks}
    spans = []
    for rank, turn, index, start, end, source in events:
        name, verb, lane, size = operations[rank][index]
        spans.append(Span(rank, turn, name, verb, lane, start, end, size, source))
    return spans


def _with_waits(plan: Plan, spans: list[Span], turns: int) -> tuple[Span, ...]:
    """The spans with the times that ranks wait for one another in them, if not all ranks do the same."""
    by_rank: dict[int, list[Span]] = defaultdict(list)
    for span in spans:
        by_rank[span.rank].append(span)
    if len(by_rank) < plan.ranks:  # one stands for all, which come at the same time
        return tuple(spans)
    turns = max(turns, 1 + max(span.turn for span in spans))  # a rank that serves others may have more turns
    seconds = waited(plan, [stamps(plan, rank, by_rank[rank], 0, turns) for rank in range(plan.ranks)])
    return with_waits(plan, spans, dict(enumerate(seconds)), 0)

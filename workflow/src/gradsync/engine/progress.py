"""The one event loop behind check, simulation and oracle: which operation may go next, and when.

The loop knows the plan's rules (order of a lane, waits, matching of messages, arrival of all ranks at a collective)
and nothing of values. Time comes from a `Clock`; with the zero clock the loop only finds an order or a deadlock.

Transfers in flight at the same time share what they have in common (a rank's sending or receiving side, or the links
of a network, as the clock says) max-min fairly in their transfer part (`contention.py`). Start-up latencies overlap;
the messages of a rank share what start-up costs its cores (`Cost.host`). So no message is ever faster than its link.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple

from gradsync.engine.contention import ContentionLoop, Side, Use
from gradsync.plan import Collective, Group, Plan, RecvAny, Reply, SharedAdd
from gradsync.plan.role_graph import RoleGraph

Line = tuple[str, int, int]  # channel, rail and tag: what a send and its receive have in common
DEEPEST = 64  # starts of operations within one another


class Cost(NamedTuple):
    """One message: start-up latency in seconds, then transfer that shares the link, in what a side carries per second.

    No more than `limit` of it per second, on an idle link too. Before all that, `host` seconds of each rank's cores.
    """

    latency: float
    transfer: float
    limit: float = inf
    host: float = 0.0


class Phase(NamedTuple):
    """The part of a message's transfer that takes the same sides alike; phases follow one another."""

    share: float
    uses: list[Use]


class Factors(NamedTuple):
    """Of interference: how many times as long as alone computation and a message take while both last."""

    computation: float
    communication: float


class Clock:
    """Durations of operations; this base class is the zero clock."""

    def local(self, rank: int, operation: Any) -> float:
        """Seconds of a need, ready, local or shared operation on `rank`."""
        return 0.0

    def message(self, operation: Any) -> Cost:
        """What a send, reply or collective takes; a send or reply without the latencies of its sides."""
        return Cost(0.0, 0.0)

    def route(self, source: int, destination: int, rail: int) -> Sequence[Hashable]:
        """Keys of the sides that a message takes if it leaves `source` on `rail`."""
        return ("out", source), ("in", destination)

    def around(self, operation: Collective, ranks: Sequence[int]) -> Sequence[tuple[float, Mapping[Hashable, float]]]:
        """What a collective of `ranks` takes, phase by phase: its share of the transfer, the sides' keys and parts."""
        return [(1.0, {(side, rank): 1.0 for rank in ranks for side in ("out", "in")})]

    def side(self, key: Any) -> Side:
        """A new side, for its key."""
        return Side()

    def handover(self) -> float:
        """Seconds from the end of an operation to the start of the next one, on another lane, that waited for it."""
        return 0.0

    def factors(self, operation: Any) -> Factors:
        """The interference of a send, reply or collective with the computation of its ranks (`interference.py`)."""
        return Factors(1.0, 1.0)


class Event(NamedTuple):
    """One finished operation: `step` is the index into the role's flat body, `source` of a receive."""

    rank: int
    turn: int
    step: int
    start: float
    end: float
    source: int | None


@dataclass
class Outcome:
    """Events in order of completion, and what never finished (rank, turn, index) if the plan is stuck."""

    events: list[Event]
    stuck: list[tuple[int, int, int]]


class Progress(ContentionLoop):
    """Runs `turns` turns of `plan` on `clock`.

    `ranks` may name fewer ranks if the plan is symmetric; `arrivals` {(rank, turn, operation): source} resolves
    receives from any as a real run did, instead of by time. With `rendezvous` a send is finished only once its message
    has been received, as with Gloo; without, once the message is there.
    """

    def __init__(
        self,
        plan: Plan,
        turns: int,
        clock: Clock,
        ranks: tuple[int, ...] | None = None,
        arrivals: Mapping[tuple[int, int, str], int] | None = None,
        rendezvous: bool = False,
    ):
        super().__init__()
        self.plan, self.turns, self.clock, self.arrivals, self.rendezvous = plan, turns, clock, arrivals, rendezvous
        self.ranks, self.handover = ranks or tuple(range(plan.ranks)), clock.handover()
        graphs = {role.name: RoleGraph(role.flat) for role in plan.roles}
        self.graph = {rank: graphs[plan.role_of[rank].name] for rank in self.ranks}
        self.open_ended = {rank: plan.role_of[rank].until_stopped for rank in self.ranks}
        self.waits: dict[tuple[int, int], list[int]] = {}
        self.started: dict[tuple[int, int, int], float] = {}
        self.events: list[Event] = []
        self.nested = 0
        self.arrived: dict[tuple[str, int, Group], list[tuple[int, int]]] = defaultdict(list)
        self.members: dict[tuple[Group, str, int], Group] = {}  # of the groups that ranks have collectives in
        # (source, to, *line) -> the operations (rank, turn, index) that sent what is there
        self.inbox: dict[tuple[int, int, str, int, int], deque[tuple[int, int, int]]] = defaultdict(deque)
        self.inbox_order: dict[tuple[int, Line], deque[int]] = defaultdict(deque)  # (to, line) -> sources by arrival
        self.posted: dict[tuple[int, int, str, int, int], deque[tuple[int, int, int]]] = defaultdict(deque)
        self.posted_any: dict[tuple[int, Line], deque[tuple[int, int, int]]] = defaultdict(deque)
        self.source_of: dict[tuple[int, int, str], int] = {}
        self.locks: dict[str, deque[tuple[int, int, int]]] = defaultdict(deque)
        self.sides: dict[Hashable, Side] = {}
        self.routes: dict[tuple[int, int, int], list[Phase]] = {}
        self.groups: dict[Hashable, list[Phase]] = {}
        self.hosts: dict[int, Side] = defaultdict(Side)  # the cores of each rank that start its messages
        self.starting: dict[tuple[int, ...], list[Use]] = {}
        self.begun = False
        # what the first turn too many waits for: (rank, turn, operation, what follows it in that turn, when it ended)
        self.held: list[tuple[int, int, int, list[int], float]] = []

    def run(self) -> Outcome:
        """The whole run, or what is left of it. A plan that is stuck returns with what never finished."""
        self._begin_turns()
        self._run()
        return Outcome(self.events, self._stuck())

    def run_until_through(self, turns: int) -> float:
        """Go on until a rank could begin turn `turns`, which is more than before; when that is.

        All is then as in a run of any more turns. `run` ends it as one of `turns` turns.
        """
        self.turns = turns
        self._begin_turns()
        held, self.held = self.held, []
        for rank, turn, done, following, now in held:
            self._release(rank, turn, done, [], following, now)
        now = held[-1][-1] if held else 0.0
        while not self.held and self.heap:
            now = self._next()
        return now

    def so_far(self) -> list[Event]:
        """Finished operations, and those that have started: these end at infinity."""
        finished = {event[:3] for event in self.events}
        return self.events + [
            Event(*operation, start, inf, None)
            for operation, start in self.started.items()
            if operation not in finished
        ]

    def _begin_turns(self) -> None:
        if self.begun:
            return
        self.begun = True
        for rank in self.ranks:
            # a copy: what stops waiting in this loop is started by what it waited for
            for index, waits in enumerate(list(self._turn(rank, 0))):
                if waits == 0:
                    self._start(rank, 0, index, 0.0)

    def _stuck(self) -> list[tuple[int, int, int]]:
        closed = [rank for rank in self.ranks if not self.open_ended[rank]]
        expected = self.turns * sum(len(self.graph[rank].body) for rank in closed)
        if len(self.events) == expected and len(closed) == len(self.ranks):
            return []
        finished = {(event.rank, event.turn, event.step) for event in self.events}
        return [
            (rank, turn, step)
            for rank in closed
            for turn in range(self.turns)
            for step in range(len(self.graph[rank].body))
            if (rank, turn, step) not in finished
        ]

    def _turn(self, rank: int, turn: int) -> list[int]:
        waits = self.waits.get((rank, turn))
        if waits is None:
            graph = self.graph[rank]
            waits = self.waits[rank, turn] = list(graph.waits if turn else graph.waits_first)
        return waits

    def _release(self, rank: int, turn: int, done: int, same: list[int], following: list[int], now: float) -> None:
        """Operation `done` is over, for which `same` of its turn and `following` of the next wait."""
        waits = self.waits[rank, turn]
        for index in same:
            waits[index] -= 1
            if waits[index] == 0:
                self._hand_over(rank, done, turn, index, now)
        if following and turn + 1 >= self.turns and not self.open_ended[rank]:
            self.held.append((rank, turn, done, following, now))
        elif following:
            waits = self._turn(rank, turn + 1)
            for index in following:
                waits[index] -= 1
                if waits[index] == 0:
                    self._hand_over(rank, done, turn + 1, index, now)

    def _hand_over(self, rank: int, done: int, turn: int, index: int, now: float) -> None:
        lane = self.graph[rank].lane
        if self.handover and lane[done] != lane[index]:
            self._at(now + self.handover, lambda time: self._start(rank, turn, index, time))
        elif self.nested < DEEPEST:
            self.nested += 1
            self._start(rank, turn, index, now)
            self.nested -= 1
        else:  # through the heap: a row of sends would otherwise nest as deep as it is long
            self._at(now, lambda time: self._start(rank, turn, index, time))

    def _finish(self, rank: int, turn: int, index: int, now: float, source: int | None = None) -> None:
        graph = self.graph[rank]
        self.events.append(Event(rank, turn, index, self.started[rank, turn, index], now, source))
        self._release(rank, turn, index, graph.same[index], graph.next[index], now)

    def _start(self, rank: int, turn: int, index: int, now: float) -> None:
        graph = self.graph[rank]
        op = graph.body[index]
        self.started[rank, turn, index] = now
        match op.verb:
            case "collective":
                self._arrive(op, rank, turn, index, now)
            case "send" | "reply":
                to = self.source_of[rank, turn, op.to] if isinstance(op, Reply) else op.to
                self._send(op, rank, to, turn, index, now)
                self._release(rank, turn, index, graph.same_post[index], graph.next_post[index], now)
            case "recv":
                line = _line(op)
                self.posted[op.source, rank, *line].append((rank, turn, index))
                self._match(op.source, rank, line, now)
            case "recv_any":
                line = _line(op)
                self.posted_any[rank, line].append((rank, turn, index))
                self._match_any(rank, line, now)
            case "shared_add" if op.locked:
                queue = self.locks[op.writes[0].buffer]
                queue.append((rank, turn, index))
                if len(queue) == 1:
                    self._locked(op, now)
            case _:
                self._work(rank, self.clock.local(rank, op), now, lambda t: self._finish(rank, turn, index, t))

    def _locked(self, op: SharedAdd, now: float) -> None:
        queue = self.locks[op.writes[0].buffer]
        rank, turn, index = queue[0]
        holder = self.graph[rank].body[index]

        def done(time: float) -> None:
            queue.popleft()
            if queue:  # before what follows on this rank, which may want the lock too
                self._locked(holder, time)
            self._finish(rank, turn, index, time)

        self._work(rank, self.clock.local(rank, holder), now, done)

    def _arrive(self, op: Collective, rank: int, turn: int, index: int, now: float) -> None:
        group = self._group(op, rank)
        key = (op.name, turn, group)
        members = self.arrived[key]
        members.append((rank, index))
        if len(members) < len(group):
            return
        del self.arrived[key]

        def done(time: float) -> None:
            for member, its_index in members:
                self._finish(member, turn, its_index, time)

        way = group, op.over, op.algorithm, op.shape, op.root, op.kind
        phases = self.groups.get(way)
        if phases is None:
            around = self.clock.around(op, group)
            phases = self.groups[way] = [Phase(share, self._uses(parts)) for share, parts in around]
        self._transfer(op, group, phases, 0.0, now, done)

    def _group(self, op: Collective, rank: int) -> Group:
        """The ranks that have a collective together, of those that are run."""
        key = op.ranks, op.over, rank
        if key not in self.members:
            self.members[key] = tuple(each for each in self.plan.group(op, rank) if each in self.graph)
        return self.members[key]

    def _send(self, op: Any, rank: int, to: int, turn: int, index: int, now: float) -> None:
        line = _line(op)

        def done(time: float) -> None:
            self.inbox[rank, to, *line].append((rank, turn, index))
            self.inbox_order[to, line].append(rank)
            if not self.rendezvous:
                self._finish(rank, turn, index, time)
            self._match(rank, to, line, time)
            self._match_any(to, line, time)

        key = rank, to, line[1]
        phases = self.routes.get(key)
        if phases is None:
            phases = self.routes[key] = [Phase(1.0, self._uses(dict.fromkeys(self.clock.route(*key), 1.0)))]
        self._transfer(op, (rank, to), phases, sum(use.side.latency for use in phases[0].uses), now, done)

    def _uses(self, parts: Mapping[Hashable, float]) -> list[Use]:
        for key in parts:
            if key not in self.sides:
                self.sides[key] = self.clock.side(key)
        return [Use(self.sides[key], part) for key, part in parts.items()]

    def _match(self, source: int, to: int, line: Line, now: float) -> None:
        waiting, messages = self.posted[source, to, *line], self.inbox[source, to, *line]
        while waiting and messages:
            self.inbox_order[to, line].remove(source)
            self._received(waiting.popleft(), messages.popleft(), now)

    def _match_any(self, to: int, line: Line, now: float) -> None:
        waiting, order = self.posted_any[to, line], self.inbox_order[to, line]
        while waiting:
            rank, turn, index = waiting[0]
            op: RecvAny = self.graph[rank].body[index]
            allowed = op.sources if self.arrivals is None else (self.arrivals.get((rank, turn, op.name)),)
            source = next((source for source in order if source in allowed), None)
            if source is None:
                return
            waiting.popleft()
            order.remove(source)
            self.source_of[rank, turn, op.name] = source
            self._received((rank, turn, index), self.inbox[source, to, *line].popleft(), now)

    def _received(self, receive: tuple[int, int, int], send: tuple[int, int, int], now: float) -> None:
        # through the heap: a row of messages that have all arrived would otherwise nest as deep as it is long
        if self.rendezvous:
            self._at(now, lambda time: self._finish(*send, time))
        self._at(now, lambda time: self._finish(*receive, time, send[0]))

    def _work(self, rank: int, seconds: float, now: float, done: Callable[[float], None]) -> None:
        """`rank` computes for `seconds`."""
        self._at(now + seconds, done)

    def _transfer(
        self,
        op: Any,
        ranks: tuple[int, ...],
        phases: Sequence[Phase],
        latency: float,
        now: float,
        done: Callable[[float], None],
    ) -> None:
        """The message of `op` between `ranks` leaves; it needs `latency` more than its start-up."""
        cost = self.clock.message(op)

        def started(time: float) -> None:
            self._at(time + (cost.latency + latency), sent)

        def sent(time: float) -> None:
            self._transferred(cost, phases, time, done)

        self._begin(cost.host, self._cores(ranks) if cost.host else [], inf, now, started)

    def _transferred(
        self, cost: Cost, phases: Sequence[Phase], now: float, done: Callable[[float], None], at: int = 0
    ) -> None:
        """From phase `at` on."""

        def over(time: float) -> None:
            self._transferred(cost, phases, time, done, at + 1)

        share, uses = phases[at]
        self._begin(share * cost.transfer, uses, cost.limit, now, over if at + 1 < len(phases) else done)

    def _cores(self, ranks: tuple[int, ...]) -> list[Use]:
        if ranks not in self.starting:
            self.starting[ranks] = [Use(self.hosts[rank]) for rank in ranks]
        return self.starting[ranks]


def _line(op: Any) -> Line:
    return op.channel, getattr(op, "rail", 0), op.tag

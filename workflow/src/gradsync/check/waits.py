"""Waits: names that resolve, no wait for what comes later, no race on any element."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from gradsync.check.grid import fail
from gradsync.plan import Need, Plan, Ready, Ref, Reply, Role, Send


def refuse_waits(plan: Plan, role: Role) -> None:
    """Raises PlanError for a wait that never ends, and for operations that touch the same elements at any time."""
    _waits(plan, role)
    order = Order(role)
    _replies(plan, role, order)
    _races(plan, role, order)


def _waits(plan: Plan, role: Role) -> None:
    position = {op.name: step for step, op in enumerate(role.flat)}
    for step, op in enumerate(role.flat):
        for name in (*op.after, *op.after_previous):
            if name not in position:
                fail(plan, f"{op.name!r} waits for {name!r}, which role {role.name!r} does not have", role, (step,))
        for name in op.after:
            if position[name] >= step:
                problem = f"{op.name!r} waits for {name!r}, which the launch order puts after it: a deadlock"
                fail(plan, problem, role, (step, position[name]))


class Order:
    """Which operations of two turns have finished before others of them start; a node is turn * operations + step.

    Of each node is known how far every lane has come when it starts: the last that has begun, and the last that has
    finished. All before the last of a lane have finished too, but for sends, which occupy it only until they are
    posted: a send has finished if something that waits for it has begun.
    """

    def __init__(self, role: Role):
        body = role.flat
        self.nodes = 2 * len(body)
        number = {lane: i for i, lane in enumerate(dict.fromkeys(op.lane for op in body))}
        self.lane = [number[op.lane] for op in body] * 2
        self.sends = [isinstance(op, Send | Reply) for op in body] * 2
        position = {op.name: step for step, op in enumerate(body)}
        nothing = (-1,) * len(number)
        self.begun: list[tuple[int, ...]] = []
        self.done: list[tuple[int, ...]] = []
        self.waiting: dict[int, dict[int, int]] = defaultdict(dict)  # send -> lane -> the first that waits for it
        last: dict[int, int] = {}
        for node in range(self.nodes):
            op, lane = body[node % len(body)], self.lane[node]
            begun, done = nothing, nothing
            for wait in self._waits(op, node // len(body), position):
                begun, done = self._later(begun, self.begun[wait]), self._later(done, self.done[wait])
                if self.sends[wait]:
                    self.waiting[wait].setdefault(lane, node)
                else:
                    done = self._with(done, wait)
            if lane in last:
                before = last[lane]
                begun, done = self._later(begun, self.begun[before]), self._later(done, self.done[before])
                done = done if self.sends[before] else self._with(done, before)
            self.begun.append(self._with(begun, node))
            self.done.append(done)
            last[lane] = node

    @staticmethod
    def _waits(op: object, turn: int, position: dict[str, int]) -> Iterator[int]:
        operations = len(position)
        for name in getattr(op, "after", ()):
            yield turn * operations + position[name]
        for name in getattr(op, "after_previous", ()) if turn else ():
            yield (turn - 1) * operations + position[name]

    @staticmethod
    def _later(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:
        return one if one is other else tuple(map(max, one, other))

    def _with(self, known: tuple[int, ...], node: int) -> tuple[int, ...]:
        lane = self.lane[node]
        return known if known[lane] >= node else (*known[:lane], node, *known[lane + 1 :])

    def finished(self, early: int, late: int) -> bool:
        """Whether `early` has finished before `late` starts."""
        begun, lane = self.begun[late], self.lane[early]
        if self.sends[early]:
            return any(begun[other] >= waiting for other, waiting in self.waiting[early].items())
        return self.done[late][lane] >= early or (early != late and begun[lane] > early)

    def and_later(self, nodes: tuple[int, ...], node: int) -> tuple[int, ...]:
        """Nodes and a later one, without those that have finished whenever it has: earlier ones of its lane."""
        if self.sends[node]:
            return (*nodes, node)
        lane = self.lane[node]
        return (*(each for each in nodes if self.lane[each] != lane or self.sends[each]), node)


def _replies(plan: Plan, role: Role, order: Order) -> None:
    """A reply goes where a message has come from before."""
    position = {op.name: step for step, op in enumerate(role.flat)}
    for step, op in enumerate(role.flat):
        if isinstance(op, Reply) and not order.finished(position[op.to], step):
            problem = f"reply {op.name!r} doesn't wait for the receive-from-any {op.to!r} that tells it where to go"
            fail(plan, problem, role, (step, position[op.to]))


class _Touched:
    """Who has written each element of a buffer last, and who has read it since; part by part."""

    def __init__(self) -> None:
        self.starts = [0]
        self.last: list[tuple[int, tuple[int, ...]]] = [(-1, ())]  # a node, -1: nobody; the nodes that read

    def between(self, start: int, stop: int) -> range:
        """The parts that make up elements [start, stop)."""
        return range(self._cut(start), self._cut(stop))

    def _cut(self, position: int) -> int:
        at = bisect_left(self.starts, position)
        if at == len(self.starts) or self.starts[at] != position:
            self.starts.insert(at, position)
            self.last.insert(at, self.last[at - 1])
        return at

    def written(self, parts: range, node: int) -> None:
        """One part in the place of these."""
        self.starts[parts.start : parts.stop] = [self.starts[parts.start]]
        self.last[parts.start : parts.stop] = [(node, ())]


def _races(plan: Plan, role: Role, order: Order) -> None:
    """No two operations of a rank touch the same elements, one of them writing, unless one waits for the other.

    In launch order: who waits for the last that wrote, and for all that have read since, waits for whoever came before.
    """
    n = len(role.flat)
    buffers = {buffer.name: _Touched() for buffer in plan.buffers if not buffer.shared}
    scaler = [Ref(buffer.name, 0, buffer.elements) for buffer in plan.buffers if buffer.role == "scaler"]
    for node in range(order.nodes):
        op = role.flat[node % n]
        reads = (*op.reads, *scaler) if isinstance(op, Need | Ready) else op.reads  # the loss is multiplied by it
        for refs, writing in ((reads, False), (op.writes, True)):
            for name, start, stop, _ in refs:
                if (touched := buffers.get(name)) is None:
                    continue
                parts = touched.between(start, stop)
                for part in parts:
                    writer, readers = touched.last[part]
                    for early in (writer, *readers) if writing else (writer,):
                        if 0 <= early != node and not order.finished(early, node):
                            names = f"{role.flat[early % n].name!r} and {op.name!r}"
                            turn = " (of the next turn)" if node // n != early // n else ""
                            where = f"{name}[{touched.starts[part]}:...]"
                            problem = f"race on {where}: {names}{turn} touch it and neither waits for the other"
                            fail(plan, problem, role, (early % n, node % n))
                    if not writing:
                        touched.last[part] = writer, order.and_later(readers, node)
                if writing:
                    touched.written(parts, node)

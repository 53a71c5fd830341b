"""Execute a plan on a device that queues its work (a GPU): an executor without threads and without waiting.

A hook fires when the kernel of a gradient has been *put on* the compute queue, not when it is done. So this module
never asks whether something has happened. Each lane has a queue and a communicator of its own. The thread that runs a
piece of computation (the caller's, or autograd's, never both at a time) puts the plan's operations on their queues in
the plan's launch order, up to the next one that computation has yet to reach. That order is the same on all ranks, as
NCCL requires for several communicators at once. An operation's queue waits for the marks of what it waits for on other
queues; within a queue order is enough.

Nobody waits for the device before the end of a run. Spans are then read from the marks, so that an end is when the
device was through, whenever the host looked.

Point-to-point transfers are refused: NCCL must have a send and its receive in one group, else they wait for each other
for ever; it has no receive-from-any, and memory that ranks share is the host's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gradsync.collectives import NATIVE
from gradsync.errors import InputError, RunError
from gradsync.plan import COMPUTE, Collective, Plan
from gradsync.plan.trace import Span
from gradsync.runtime.execute import Executor
from gradsync.runtime.group import Groups, settle
from gradsync.runtime.step import Step

VERBS = ("need", "ready", "local", "collective")


def refuse(plan: Plan) -> None:
    """Raises InputError for a plan that can't be executed in queues."""
    for role in plan.roles:
        for op in role.flat:
            if isinstance(op, Collective) and op.algorithm != NATIVE:
                raise InputError(
                    f"plan {plan.name!r}: {op.name!r} is the collective {op.algorithm!r}, made of transfers between "
                    f"two ranks: on --device cuda only {NATIVE} is executed; take that, or --device cpu"
                )
            if op.verb not in VERBS:
                raise InputError(
                    f"plan {plan.name!r}: {op.verb} {op.name!r} can't be executed on --device cuda, which knows "
                    f"{', '.join(VERBS)}: take --device cpu"
                )


def prepare(plan: Plan, rank: int, groups: Groups, **options: Any) -> Executor:
    """The executor of `plan` on the device of `groups`. Collective over all ranks of the plan."""
    return (Enqueuer if groups.device.queued else Executor)(plan, rank, groups, **options)


class Enqueuer(Executor):
    """An `Executor` whose operations are queued, all lanes in one order; see the module."""

    def __init__(self, plan: Plan, rank: int, groups: Groups, **options: Any):
        refuse(plan)
        super().__init__(plan, rank, groups, **options)
        self.now = self._mark_if_recorded
        place = {op.name: number for number, op in enumerate(self.body)}
        self.awaited = {op.name: self._last_of_lanes(op, place) for op in self.body}
        self.watched = {name for both in self.awaited.values() for names in both for name in names}
        self.queues = {lane: groups.queue(lane) for lane in self.lanes if lane != COMPUTE}
        self.position = 0  # in the body: what lies before has been launched, or is being computed
        self.passed: set[str] = set()  # computation of this turn that has been launched whole
        self.first = 0  # turn of this run
        self.zero_hour, self.borders = 0.0, list[Any]()  # when the run began; marks of the borders of its turns
        self.marks: dict[int, dict[str, Any]] = {}  # turn -> watched operation -> its end
        self.stamped: list[tuple[Any, int, Any, Any]] = []  # operation, turn, marks of its start and end

    def begin_turns(self, turns: int | None = None, *, record: bool = False) -> None:
        """Begin as the executor does, without threads; the device is idle then."""
        self.record, self.closed, self.ends = record, turns is not None, []
        self.first = self.turn
        self.device.synchronize()
        self.marks, self.stamped = {}, []
        self.zero_hour, self.borders = time.perf_counter(), [self.device.mark()]
        for queue in self.queues.values():
            with self.device.on(queue):
                self.device.wait(self.borders[0])

    def take_turn(self) -> Iterator[Step]:
        """Queue one more turn; the computation of the last pass is followed by all that is left of it."""
        turn = self.turn
        self.position, self.passed = 0, set()
        self.marks = {turn - 1: self.marks.get(turn - 1, {}), turn: {}}
        self._launch(turn, self.record)
        yield from super().take_turn()
        if self.position < len(self.body):
            missed = self.body[self.position].name
            raise RunError(f"rank {self.rank}, turn {turn}: {missed!r} was never reached: check the plan")
        if self.closed:
            self.borders.append(self.device.mark())

    def end_turns(self) -> None:
        """Wait for the device, and read the marks."""
        device, failure, self.failure = self.device, self.failure, None
        if failure is not None:
            raise failure
        if self.queues:
            settle(device)
        else:
            device.synchronize()  # nothing is sent: other ranks may not even run
        at = device.instants(self.borders)
        clock = [self.zero_hour + seconds - at[0] for seconds in at]  # of this machine, as a processor's stamps
        self.ends = clock[1:]
        for op, turn, start, end in self.stamped:
            border, zero = self.borders[turn - self.first], clock[turn - self.first]
            began, ended = (zero + device.seconds(border, mark) for mark in (start, end))
            self.spans.append(Span(self.rank, turn, op.name, op.verb, op.lane, began, ended, self.bytes[op.name]))

    def in_rounds(self, op: Collective) -> Collective | None:
        """None: the backend executes all of them."""
        return None

    def _last_of_lanes(self, op: Any, place: dict[str, int]) -> tuple[list[str], list[str]]:
        """Of what `op` waits for in this turn and in the last one: the last of each other lane, behind which all are.

        What is awaited of a lane in this turn lies behind all of its last turn.
        """
        now: dict[str, str] = {}
        for name in sorted(op.after, key=place.__getitem__):
            now[self.lane_of[name]] = name
        previous: dict[str, str] = {}
        for name in sorted(op.after_previous, key=place.__getitem__):
            previous[self.lane_of[name]] = name
        own = {op.lane}
        return (
            [name for lane, name in now.items() if lane not in own],
            [name for lane, name in previous.items() if lane not in own | now.keys()],
        )

    def _mark_if_recorded(self) -> Any:
        """A mark, if the turn is recorded: each costs the host about as much as the launch of a kernel."""
        return self.device.mark() if self.record else None

    def _launch(self, turn: int, record: bool) -> None:
        """Put all operations of lanes before the next one of computation on their queues."""
        while self.position < len(self.body):
            op = self.body[self.position]
            if op.lane != COMPUTE:
                self.position += 1
                with self.device.on(self.queues[op.lane]):
                    self.do(op, turn, record)
            elif op.name in self.passed:
                self.position += 1
            else:
                return

    def wait_for(self, op: Any, turn: int) -> bool:
        """The current queue, which is that of `op`, waits; the host does not."""
        for names, wanted in zip(self.awaited[op.name], (turn, turn - 1), strict=True):
            for name in names:
                if wanted < self.first:
                    continue  # what an earlier run launched is done
                mark = self.marks[wanted].get(name)
                if mark is None:
                    raise RunError(
                        f"rank {self.rank}, turn {turn}: {op.name!r} waits for {name!r}, which is launched after it"
                    )
                self.device.wait(mark)
        return False

    def finish(self, op: Any, turn: int, start: Any, record: bool, source: int | None = None) -> Any:
        """Mark the end on the current queue; after computation, launch what may follow. Returns the mark."""
        end = self.device.mark() if record or op.name in self.watched else None
        if op.name in self.watched:
            self.marks[turn][op.name] = end
        if record:
            self.stamped.append((op, turn, start, end))
        if op.lane == COMPUTE:
            self.passed.add(op.name)
            self._launch(turn, record)
        return end

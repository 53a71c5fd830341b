"""Turns of a plan's loop on one rank: a thread for each lane, and the compute lane in the thread of the caller.

`run` does a number of turns. A loop that is not ours takes them one by one (`begin_turns`, `take_turn`, `end_turns`):
between two of them lanes go on with what is left of the turn before, and none begins one that has not been taken.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gradsync.check.channels import served
from gradsync.errors import RunError
from gradsync.plan import COMPUTE, Need, Plan, Ready
from gradsync.runtime.step import Compute, Step


class LaneFailedError(Exception):
    """Another lane of this rank has failed."""


class Turns(ABC):
    """The turns of the role of `rank`."""

    def __init__(self, plan: Plan, rank: int):
        self.plan, self.rank, self.role = plan, rank, plan.role_of[rank]
        self.body = list(self.role.flat)
        self.lanes: dict[str, list[Any]] = defaultdict(list)
        for op in self.body:
            self.lanes[op.lane].append(op)
        self.posts: set[str] = set()  # operations that are finished later than they are done
        self.finished: dict[str, int] = {}  # operation -> the last turn in which it was
        self.condition = threading.Condition()
        self.failure: BaseException | None = None
        self.threads: list[threading.Thread] = []  # of the lanes, from `begin_turns` to `end_turns`
        self.turn = 0  # the next turn to run; turns go on over calls of `run`
        self.admitted = 0  # lanes may begin the turns before this one
        self.record = self.closed = False  # whether spans are kept; whether no turn will be admitted any more
        self.ends: list[float] = []  # when each turn of the last `run` ended

    @abstractmethod
    def do(self, op: Any, turn: int, record: bool) -> None:
        """Wait for what an operation waits for, do it, and record it."""

    @abstractmethod
    def _pass(self, ops: list[Any], turn: int) -> Step:
        """The pass of a turn that these operations of the compute lane are."""

    @abstractmethod
    def _finish_posted(self, name: str, turn: int) -> None:
        """Block until all sends of an operation that were posted before `turn` have left."""

    def run(self, turns: int, compute: Compute | None = None, *, record: bool = True) -> None:
        """Run the role's loop for `turns` more turns (a role that serves others runs until they have had theirs).

        Raises RunError that names rank and operation if something failed.
        """
        turns = self._served(turns) if self.role.until_stopped else turns
        self.begin_turns(turns, record=record)
        try:
            for _ in range(turns):
                for step in self.take_turn():
                    if compute is None:
                        raise RunError(
                            f"rank {self.rank}: role {self.role.name!r} computes gradients; nothing to compute was "
                            "given"
                        )
                    step.run(compute)
        except LaneFailedError:
            pass
        except BaseException as error:
            self._fail(error)
        self.end_turns()

    def begin_turns(self, turns: int | None = None, *, record: bool = False) -> None:
        """Start the lanes. `take_turn` follows for each of `turns` turns (None: for as many as there will be).

        A lane begins a turn that is not counted once it is taken, so that all have done the same at `end_turns`.
        """
        self.record, self.closed, self.ends = record, turns is not None, []
        self.admitted = self.turn + (turns or 0)
        self.threads = [
            threading.Thread(target=self._lane, args=(ops, self.turn), name=lane, daemon=True)
            for lane, ops in self.lanes.items()
            if lane != COMPUTE
        ]
        for thread in self.threads:
            thread.start()

    def take_turn(self) -> Iterator[Step]:
        """Do the compute lane's operations of one more turn; each pass of it is given, for the caller to run.

        Those before a pass are done when it comes, those behind the last one when there is none left.
        """
        turn = self.turn
        if not self.closed:
            with self.condition:
                self.admitted = turn + 1
                self.condition.notify_all()
        ops, passes = self.lanes[COMPUTE], self.role.pass_of
        last = {passes[op.name]: position for position, op in enumerate(ops) if op.name in passes}
        position = 0
        while position < len(ops):
            if not isinstance(ops[position], Need | Ready):
                self.do(ops[position], turn, self.record)
                position += 1
                continue
            stop = last[passes[ops[position].name]] + 1
            yield self._pass(ops[position:stop], turn)
            position = stop
        if self.closed:
            self.ends.append(time.perf_counter())
        self.turn = turn + 1

    def end_turns(self) -> None:
        """Wait until the lanes have done every turn that was taken. Raises what failed in one of them."""
        with self.condition:
            self.closed = True
            self.condition.notify_all()
        for thread in self.threads:
            thread.join()
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        for name in self.posts:
            self._finish_posted(name, self.turn)

    def resume(self, turn: int) -> None:
        """Go on with `turn`, as if those before it had been run; the buffers are the caller's to restore."""
        self.turn = turn
        self.finished = dict.fromkeys(self.finished, turn - 1)

    def _served(self, turns: int) -> int:
        """The passes that a role that serves others has in so many turns of theirs."""
        return served(self.plan, self.role) * turns

    def _lane(self, ops: list[Any], turn: int) -> None:
        try:
            while self._admits(turn):
                for op in ops:
                    self.do(op, turn, self.record)
                turn += 1
        except LaneFailedError:
            pass
        except BaseException as error:  # whatever it is must reach the caller of `run`
            self._fail(error)

    def _admits(self, turn: int) -> bool:
        """Block until a lane may begin the turn; False if the run has no such turn."""
        if turn >= self.admitted and not self.closed:
            with self.condition:
                self.condition.wait_for(lambda: turn < self.admitted or self.closed or self.failure is not None)
            if self.failure is not None:
                raise LaneFailedError
        return turn < self.admitted

    def _fail(self, error: BaseException) -> None:
        with self.condition:
            if self.failure is None:
                self.failure = error
            self.condition.notify_all()

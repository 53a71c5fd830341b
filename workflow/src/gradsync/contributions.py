"""Whose gradients each element holds: a plan run on sets instead of numbers.

Every gradient that a rank makes ready is a token of its own. Sums join sets of tokens, copies and messages carry them,
and an update that requires a sum must find the tokens of all ranks, each once. So a message that is missing, sent
twice, or too early is found by name, through collectives of some ranks and point-to-point transfers alike.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from itertools import pairwise
from typing import Any

from gradsync.plan import Collective, Plan, Ready, Ref, piece
from gradsync.progress import Event

State = int | str | None
"""A set of tokens (bits); what a kernel declared of its output; None: nothing that can be followed."""

Parts = list[tuple[int, int, State]]


class LostError(Exception):
    """What is wrong, and where: (problem, rank, step of the rank's role)."""

    def __init__(self, problem: str, rank: int, step: int):
        super().__init__(problem)
        self.problem, self.rank, self.step = problem, rank, step


class _Cover:
    """States of a buffer: parts [starts[i], starts[i + 1])."""

    def __init__(self, elements: int):
        self.starts, self.states, self.stop = [0], list[State]([None]), elements

    def read(self, start: int, stop: int) -> Parts:
        """The parts of [start, stop), counted from `start`."""
        found = []
        i = bisect_right(self.starts, start) - 1
        while i < len(self.starts) and self.starts[i] < stop:
            end = self.starts[i + 1] if i + 1 < len(self.starts) else self.stop
            found.append((max(self.starts[i], start) - start, min(end, stop) - start, self.states[i]))
            i += 1
        return found

    def write(self, start: int, parts: Parts) -> None:
        """Put parts, counted from `start`."""
        if not parts:
            return
        low, high = start + parts[0][0], start + parts[-1][1]
        before = bisect_right(self.starts, low) - 1
        after = bisect_right(self.starts, high) - 1
        tail = [] if high >= self.stop else [(high, self.states[after])]
        head = [(self.starts[before], self.states[before])] if self.starts[before] < low else []
        first = before
        last = after if high < self.stop else len(self.starts) - 1
        new = [*head, *((start + a, state) for a, _, state in parts), *tail]
        self.starts[first : last + 1] = [position for position, _ in new]
        self.states[first : last + 1] = [state for _, state in new]


def verify(plan: Plan, events: list[Event], ranks: tuple[int, ...], last_turn: int) -> None:
    """Follow `events` of `ranks` (one rank stands for all where the plan is symmetric); raises LostError."""
    _Run(plan, ranks, last_turn).run(events)


class _Run:
    def __init__(self, plan: Plan, ranks: tuple[int, ...], last_turn: int):
        self.plan, self.ranks, self.last_turn = plan, ranks, last_turn
        self.covers = {rank: {b.name: _Cover(b.elements) for b in plan.buffers} for rank in ranks}
        self.op = {role.name: {op.name: (step, op) for step, op in enumerate(role.flat)} for role in plan.roles}
        # passes of gradient accumulation: the n-th time that a role makes a tensor ready is another token
        self.token: dict[tuple[str, str], int] = {}
        self.passes = 1
        for role in plan.roles:
            times: dict[str, int] = defaultdict(int)
            for op in role.flat:
                if isinstance(op, Ready):
                    names = [tensor.name for tensor in plan.tensors] if op.tensor is None else [op.tensor]
                    self.token[role.name, op.name] = max(times[name] for name in names)
                    for name in names:
                        times[name] = self.token[role.name, op.name] + 1
                        self.passes = max(self.passes, times[name])
        self.workers = [r for role in plan.roles if any(isinstance(op, Ready) for op in role.flat) for r in role.ranks]
        self.sent: dict[tuple[int, int, int], deque[list[Parts]]] = defaultdict(deque)
        self.source: dict[tuple[int, int, str], int] = {}
        self.done: set[tuple[str, int, tuple[int, ...]]] = set()

    def run(self, events: list[Event]) -> None:
        for event in events:
            op = self.plan.role_of[event.rank].flat[event.step]
            handler = getattr(self, f"_{op.verb}", None)
            if handler is not None:
                handler(op, event)

    def _bounds(self, ref: Ref, rank: int) -> tuple[int, int]:
        return piece(ref.start, ref.stop, rank, self.plan.ranks) if ref.mine else (ref.start, ref.stop)

    def _get(self, ref: Ref, rank: int) -> Parts:
        return self.covers[rank][ref.buffer].read(*self._bounds(ref, rank))

    def _put(self, ref: Ref, rank: int, parts: Parts) -> None:
        self.covers[rank][ref.buffer].write(self._bounds(ref, rank)[0], parts)

    def _fill(self, ref: Ref, rank: int, state: State) -> None:
        start, stop = self._bounds(ref, rank)
        if stop > start:
            self._put(ref, rank, [(0, stop - start, state)])

    def _ready(self, op: Any, event: Event) -> None:
        role = self.plan.role_of[event.rank].name
        bit = 1 << (event.rank * self.passes + self.token[role, op.name])
        for ref in op.writes:
            if op.adds:
                start, stop = self._bounds(ref, event.rank)
                found: list[Parts] = [self._get(ref, event.rank), [(0, stop - start, bit)]]
                self._put(ref, event.rank, self._sum(found, op, event.rank, ref))
            else:
                self._fill(ref, event.rank, bit)

    def _send(self, op: Any, event: Event) -> None:
        self.sent[event.rank, op.to, op.tag].append([self._get(ref, event.rank) for ref in op.reads])

    def _reply(self, op: Any, event: Event) -> None:
        to = self.source[event.rank, event.turn, op.to]
        self.sent[event.rank, to, op.tag].append([self._get(ref, event.rank) for ref in op.reads])

    def _recv(self, op: Any, event: Event) -> None:
        source = -1 if event.source is None else event.source
        self.source[event.rank, event.turn, op.name] = source
        for ref, parts in zip(op.writes, self.sent[source, event.rank, op.tag].popleft(), strict=True):
            self._put(ref, event.rank, parts)

    _recv_any = _recv

    def _local(self, op: Any, event: Event) -> None:
        rank = event.rank
        if op.requires and event.turn == self.last_turn:
            self._require(op, event)
        if op.kernel == "add":
            mine, other = self._get(op.writes[0], rank), self._get(op.reads[0], rank)
            self._put(op.writes[0], rank, self._sum([mine, other], op, rank, op.writes[0]))
        elif op.kernel in ("copy", "cast"):
            self._put(op.writes[0], rank, self._get(op.reads[0], rank))
        elif op.kernel == "fill":
            for ref in op.writes:
                self._fill(ref, rank, 0 if not op.arguments.get("value") else None)
        elif op.kernel != "join":
            for ref in op.writes:
                self._fill(ref, rank, op.postcondition)

    def _collective(self, op: Collective, event: Event) -> None:
        key = (op.name, event.turn, op.ranks)
        if key in self.done:
            return
        self.done.add(key)
        everyone = op.ranks or tuple(range(self.plan.ranks))
        here = [rank for rank in everyone if rank in self.covers]
        ops = {rank: self.op[self.plan.role_of[rank].name][op.name][1] for rank in here}
        for i in range(len(op.writes)):
            inputs = {rank: self._get(ops[rank].reads[i], rank) for rank in here}
            length = op.writes[i].stop - op.writes[i].start
            pieces = [piece(0, length, place, len(everyone)) for place in range(len(everyone))]
            if op.kind in ("all_reduce", "reduce_scatter"):
                rank = event.rank
                parts = inputs[here[0]]
                if len(here) < len(everyone):
                    parts = [(a, b, self._of_all(state, ops[rank], rank, op.reads[i], a, b)) for a, b, state in parts]
                else:
                    parts = self._sum([inputs[rank] for rank in here], ops[rank], rank, op.reads[i])
            elif op.kind == "broadcast":
                parts = inputs.get(op.root, inputs[here[0]])
            for rank in here:
                if op.kind == "reduce_scatter":
                    start, stop = pieces[everyone.index(rank)]
                    own = _cut(parts, start, stop)
                    found: Parts = [(0, start, None)] if start else []
                    found += own
                    found += [(stop, length, None)] if stop < length else []
                    self._put(ops[rank].writes[i], rank, found)
                elif op.kind == "all_gather":
                    whole = [
                        part
                        for place, (start, stop) in enumerate(pieces)
                        for part in _cut(inputs.get(everyone[place], inputs[here[0]]), start, stop)
                    ]
                    self._put(ops[rank].writes[i], rank, whole)
                else:
                    self._put(ops[rank].writes[i], rank, parts)

    def _of_all(self, state: State, op: Any, rank: int, ref: Ref, a: int, b: int) -> State:
        """The sum over all ranks where each has what `rank` has, of its own."""
        if not isinstance(state, int):
            return None
        own = (1 << self.passes) - 1
        if state >> (rank * self.passes) & own != state >> (rank * self.passes) or state & (
            (1 << rank * self.passes) - 1
        ):
            self._twice(op, rank, ref, a, b)
        return sum((state >> rank * self.passes) << worker * self.passes for worker in self.workers)

    def _sum(self, inputs: list[Parts], op: Any, rank: int, ref: Ref) -> Parts:
        cuts = sorted({edge for parts in inputs for a, b, _ in parts for edge in (a, b)})
        positions = [0] * len(inputs)
        total: Parts = []
        for low, high in pairwise(cuts):
            state: State = 0
            for i, parts in enumerate(inputs):
                while parts[positions[i]][1] <= low:
                    positions[i] += 1
                other = parts[positions[i]][2]
                if isinstance(state, int) and isinstance(other, int):
                    if state & other:
                        self._twice(op, rank, ref, low, high)
                    state |= other
                else:
                    state = None
            total.append((low, high, state))
        return total

    def _twice(self, op: Any, rank: int, ref: Ref, a: int, b: int) -> None:
        start = self._bounds(ref, rank)[0]
        step = self.op[self.plan.role_of[rank].name][op.name][0]
        raise LostError(f"{op.name!r} sums {self._tensors(start + a, start + b)} a second time", rank, step)

    def _require(self, op: Any, event: Event) -> None:
        own = (1 << self.passes) - 1
        for ref in op.reads:
            if ref.buffer != "gradient":
                continue
            start = self._bounds(ref, event.rank)[0]
            for a, b, state in self._get(ref, event.rank):
                if op.requires in ("sum", "shard") and isinstance(state, int):
                    each = {worker: state >> worker * self.passes & own for worker in self.workers}
                    passes = 0  # those that anybody's gradients are there of: all of them must be of everybody
                    for found in each.values():
                        passes |= found
                    ranks = [worker for worker, found in each.items() if found != passes or not found]
                    if not ranks:
                        continue
                    those = f"the gradients of rank(s) {', '.join(map(str, ranks[:4]))}{', ...' if ranks[4:] else ''}"
                elif state == op.requires:
                    continue
                else:
                    those = repr(op.requires)
                raise LostError(
                    f"missing gradient: {self._tensors(start + a, start + b)} reaches {op.name!r} without {those}: "
                    "no message carries it",
                    event.rank,
                    event.step,
                )

    def _tensors(self, start: int, stop: int) -> str:
        names = [tensor.name for tensor in self.plan.tensors if tensor.start < stop and start < tensor.stop]
        return repr(names[0]) + (f" to {names[-1]!r}" if len(names) > 1 else "")


def _cut(parts: Parts, start: int, stop: int) -> Parts:
    return [(max(a, start), min(b, stop), state) for a, b, state in parts if a < stop and start < b]

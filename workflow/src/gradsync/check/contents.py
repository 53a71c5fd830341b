"""What every buffer holds after every operation: a plan run on contents (`plan/content.py`) instead of numbers.

Every gradient that a rank makes is a token of its own, every change of a parameter a version. What is followed:

- Whatever is read has been written, and what arrives in a buffer is of its role and in its own place.
- A sum holds each rank's gradient once, and an update gets those that it requires: of all ranks, all passes.
- Gradients that are summed were computed with the same parameters, and change just those.
- A loss scale is taken out of the gradients that were computed under it. Whether a step is skipped, all ranks decide
  by one norm of all gradients, and it moves after each step.
- Every gradient reaches one update (`finish.py`): no version of a parameter but one, on whichever ranks hold it, is
  made of it.
- No update is lost: none is applied to a version that another one was applied to before.
- Both sides of an elastic exchange use the same pair of parameters and centre, once.
- A mean of parameters is that of all ranks, each after as many steps of its own from the same parameters.

So a message that is missing, doubled, early, late or in the wrong place is found by name, whatever carries it.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, NoReturn

from gradsync.check import centres, collectives
from gradsync.check.track import Track
from gradsync.engine.progress import Event
from gradsync.kernels import KERNELS, Message, reads_of
from gradsync.plan import Buffer, Collective, Need, Plan, Ready, Ref, SharedAdd
from gradsync.plan.content import (
    CENTRE,
    CONSTANT,
    DIFFERENCE,
    GRADIENT,
    MIXED,
    MOMENTUM,
    NOTHING,
    PARAMETER,
    RESIDUAL,
    SCALER,
    STATE,
    STATISTICS,
    UNSENT,
    UNSET,
    Content,
    Cover,
    Part,
    Parts,
    Sum,
    sum_of_parameters,
    sum_of_products,
    sum_of_squares,
    terms,
    together,
)

FIRST = {  # what buffers hold before anything has run, by role
    "parameter": PARAMETER,
    "momentum": MOMENTUM,
    "residual": RESIDUAL,
    "centre": CENTRE,
    "statistics": STATISTICS,
    "scaler": SCALER,
    "state": STATE,
}
ACCEPTED = {  # what may be written into a buffer, by role; into the others anything
    "gradient": (GRADIENT, CONSTANT),
    "parameter": (PARAMETER,),
    "momentum": (MOMENTUM,),
    "residual": (RESIDUAL, UNSENT),
    "centre": (CENTRE,),
    "statistics": (STATISTICS,),
    "scaler": (SCALER,),
}
EXCHANGED = {"parameter": CENTRE, "centre": PARAMETER}  # a centre may become parameters, and they it

Place = tuple[int, int, str]  # rank, step, operation


class ContentError(Exception):
    """What is wrong, and where: (problem, rank, step of the rank's role)."""

    def __init__(self, problem: str, rank: int, step: int):
        super().__init__(problem)
        self.problem, self.rank, self.step = problem, rank, step


class Seen(NamedTuple):
    """What one pass of one rank computes with: parameters; statistics and a loss scale if it has any."""

    parameters: Cover
    statistics: tuple[Part, ...]
    scaler: Content | None


class Run:
    """The contents of all buffers of all ranks.

    `follow` takes one event after another; `finish.py` looks at what is left at the end.
    """

    def __init__(self, plan: Plan, turns: int):
        self.plan, self.ranks, self.turns = plan, range(plan.ranks), turns
        self.elements = plan.elements
        shared = {buffer.name: self._cover(buffer) for buffer in plan.buffers if buffer.shared}
        self.covers = {
            rank: {buffer.name: shared.get(buffer.name) or self._cover(buffer) for buffer in plan.buffers}
            for rank in self.ranks
        }
        self.op = {role.name: {op.name: op for op in role.flat} for role in plan.roles}
        self.step = {role.name: {op.name: step for step, op in enumerate(role.flat)} for role in plan.roles}
        self.workers = tuple(
            rank for rank in self.ranks if any(isinstance(op, Ready) for op in plan.role_of[rank].flat)
        )
        self.passes = turns * max((role.passes for role in plan.roles), default=0)  # bits of a rank
        self.versions: dict[Hashable, int] = {}
        self._held: dict[int, int] = {}  # version of parameters or of a centre -> the gradients in it
        self.began: dict[int, int] = {}  # version of a rank's own steps alone -> the one that they began from
        self.averaged: dict[int, tuple[int, ...]] = {}  # version made of a mean -> those of the ranks
        self.seen: dict[tuple[int, int], Seen] = {}
        self.decided: dict[
            Content, tuple[Ref, int]
        ] = {}  # scaler -> the norm that decides on a step, and of which tokens
        self._owners: dict[int, dict[int, list[int]]] = {}
        self._drifted: dict[int, tuple[int, int] | None] = {}
        self.uses = Cover(self.elements, Content("uses", frozenset()))
        self.pairs = {side: Cover(self.elements, Content("pairs", frozenset())) for side in ("worker", "centre")}
        self.messages: dict[int, Message] = {}  # sparse ones
        self.encoded: dict[int, Place] = {}  # those that nobody has decoded
        self.encoded_in: dict[int, set[int]] = {}  # turn -> those of it
        self.sent: dict[tuple[int, int, str, int, int], deque[list[Parts]]] = defaultdict(deque)
        self.source: dict[tuple[int, int, str], int] = {}
        self.done: set[tuple[str, int, tuple[int, ...]]] = set()

    def _cover(self, buffer: Buffer) -> Cover:
        kind = FIRST.get(buffer.role)
        return Cover(buffer.elements, UNSET if kind is None else Content(kind, 0, 0))

    def follow(self, event: Event) -> None:
        """One finished operation; raises ContentError."""
        rank = event.rank
        op = self.plan.role_of[rank].flat[event.step]
        getattr(self, f"_{op.verb}")(op, event)

    # Ranges

    def bounds(self, ref: Ref, rank: int) -> tuple[int, int]:
        """The bounds of what a rank takes of a range."""
        return self.plan.mesh.bounds(ref, rank)

    def get(self, ref: Ref, rank: int, op: Any, part: tuple[int, int] | None = None) -> Parts:
        """What is read, of the whole range or of `part` of it; raises if nothing has been written."""
        start, stop = self.bounds(ref, rank)
        if part is not None:
            start, stop = start + part[0], start + part[1]
        parts = self.covers[rank][ref.buffer].read(start, stop)
        for low, high, content in parts:
            if content.kind == NOTHING:
                where = f"{ref.buffer}[{start + low}:{start + high}]"
                self.fail(f"{op.name!r} reads {where}, which nothing has written", rank, op)
        return parts

    def put(self, ref: Ref, rank: int, op: Any, parts: Sequence[Part]) -> None:
        """What is written; raises if it is not what the buffer is for, or in the place of others."""
        self.keep(ref, rank, op, self.taken(ref, self.bounds(ref, rank)[0], parts, rank, op))

    def keep(self, ref: Ref, rank: int, op: Any, taken: Sequence[Part]) -> None:
        """Writes parts as a buffer of that role holds them; raises if they lose what a centre had taken in."""
        centres.refuse_lost(self, ref, rank, op, taken)
        self.covers[rank][ref.buffer].write(self.bounds(ref, rank)[0], taken)

    def taken(self, ref: Ref, start: int, parts: Sequence[Part], rank: int, op: Any) -> Sequence[Part]:
        """The parts as a buffer of that role holds them."""
        buffer = self.plan.buffer[ref.buffer]
        accepted = ACCEPTED.get(buffer.role)
        if accepted is None:
            return parts
        other = EXCHANGED.get(buffer.role)
        if any(part.content.kind == other for part in parts):
            kind = FIRST[buffer.role]
            parts = [p._replace(content=p.content._replace(kind=kind)) if p.content.kind == other else p for p in parts]
        for low, high, (kind, key, shift) in parts:
            if (kind not in accepted and kind != NOTHING) or (kind == CONSTANT and key != 0):
                place = f"{buffer.name}[{start + low}:{start + high}]"
                self.fail(f"{op.name!r} puts {kind} in {place}, a buffer for {buffer.role}", rank, op)
            if shift is not None and shift != start:
                place = f"{buffer.name}[{start + low}:{start + high}]"
                names = self.tensors(low + shift, high + shift)
                self.fail(f"{op.name!r} puts {kind} of {names} in the place of others, {place}", rank, op)
        return parts

    def fail(self, problem: str, rank: int, op: Any) -> NoReturn:
        """Raises ContentError."""
        raise ContentError(problem, rank, self.step[self.plan.role_of[rank].name][op.name])

    def tensors(self, start: int, stop: int) -> str:
        """Names of the tensors in a range of elements."""
        first = bisect_right(self.plan.tensors, start, key=lambda tensor: tensor.stop)
        last = bisect_left(self.plan.tensors, stop, key=lambda tensor: tensor.start) - 1
        if first > last:
            return f"elements {start} to {stop - 1}"
        names = [repr(self.plan.tensors[i].name) for i in (first, last)]
        return names[0] if first == last else " to ".join(names)

    def version(self, *what: Hashable) -> int:
        """A number for what a value was computed from: equal numbers, equal values."""
        return self.versions.setdefault(what, len(self.versions) + 1)

    def hold(self, version: int, tokens: int) -> None:
        """A version of parameters or of a centre has these gradients in it."""
        self._held[version] = self._held.get(version, 0) | tokens

    def holds(self, content: Content) -> int:
        """The gradients in parameters, in a centre, or in a sum of them."""
        held = 0
        for versions in terms(content):
            for version in versions:
                held |= self.held_in(version)
        return held

    def held_in(self, version: int) -> int:
        """The gradients in a version of parameters or of a centre."""
        return self._held.get(version, 0)

    # Tokens

    def token(self, rank: int, number: int) -> int:
        """The bit of a rank's gradient of a pass, counted over all turns."""
        return 1 << (self.workers.index(rank) * self.passes + number)

    def owners(self, tokens: int) -> dict[int, list[int]]:
        """Rank -> its passes among these tokens."""
        known = self._owners.get(tokens)
        if known is not None:
            return known
        passes_of = self._owners[tokens] = {}
        for place, rank in enumerate(self.workers):
            bits = tokens >> (place * self.passes) & ((1 << self.passes) - 1)
            if bits:
                passes_of[rank] = [number for number in range(self.passes) if bits >> number & 1]
        return passes_of

    # Computation

    def _need(self, op: Need, event: Event) -> None:
        rank = event.rank
        seen = self._seen(op, event)
        for ref in op.reads:
            if self.plan.buffer[ref.buffer].role == "parameter":
                seen.parameters.write(ref.start, self.get(ref, rank, op))
        for ref in op.writes:
            held = self.get(ref, rank, op)
            changed = self.version("forward", rank, self._pass(op, event), tuple(held))
            self.put(ref, rank, op, [Part(0, ref.stop - ref.start, Content(STATISTICS, changed, ref.start))])

    def _pass(self, op: Need | Ready, event: Event) -> int:
        role = self.plan.role_of[event.rank]
        return event.turn * role.passes + role.pass_of[op.name]

    def _seen(self, op: Need, event: Event) -> Seen:
        key = (event.rank, self._pass(op, event))
        if key not in self.seen:
            held: list[Part] = []
            if self.plan.role_of[event.rank].pass_of[op.name] == 0:  # later ones of a turn have their rank's own
                for ref in op.writes:
                    held += self.get(ref, event.rank, op)
            self.seen[key] = Seen(Cover(self.elements), tuple(held), self._scaler(event.rank))
        return self.seen[key]

    def _scaler(self, rank: int) -> Content | None:
        name = self.plan.holding("scaler")
        return None if name is None else self.covers[rank][name].read(0, 1)[0].content

    def _ready(self, op: Ready, event: Event) -> None:
        rank, number = event.rank, self._pass(op, event)
        for ref in op.reads:
            if self.get(ref, rank, op) != self.seen[rank, number].parameters.read(ref.start, ref.stop):
                self.fail(f"{op.name!r} computes with other parameters than forward did", rank, op)
        (ref,) = op.writes
        new = [Part(0, ref.stop - ref.start, Content(GRADIENT, Sum(self.token(rank, number)), ref.start))]
        if op.adds:
            new = self.sum([self.get(ref, rank, op), new], rank, op, ref)
        self.put(ref, rank, op, new)

    def drifted(self, tokens: int) -> tuple[int, int] | None:
        """Two ranks that computed these gradients with different parameters or statistics; None: there are none."""
        if tokens not in self._drifted:
            self._drifted[tokens] = self._find_drifted(tokens)
        return self._drifted[tokens]

    def _find_drifted(self, tokens: int) -> tuple[int, int] | None:
        models: dict[str, tuple[int, Hashable]] = {}
        for rank, numbers in self.owners(tokens).items():
            for number in numbers:
                seen = self.seen[rank, number]
                parts: dict[str, Hashable] = {
                    "parameters": (tuple(seen.parameters.starts), tuple(seen.parameters.contents))
                }
                if number % self.plan.role_of[rank].passes == 0:  # in a later pass of a turn they are the rank's own
                    parts["statistics"] = seen.statistics
                for kind, contents in parts.items():
                    other, expected = models.setdefault(kind, (rank, contents))
                    if expected != contents:
                        return other, rank
        return None

    # Local operations

    def _local(self, op: Any, event: Event) -> None:
        reads = reads_of(op, self.plan.mesh, event.rank)
        track = Track(self, op if reads == op.reads else dataclasses.replace(op, reads=reads), event)
        track.refuse_others()
        KERNELS[op.kernel].follow(track)
        if op.postcondition:
            track.refuse_incomplete()

    def sum(self, operands: Sequence[Parts], rank: int, op: Any, ref: Ref) -> Parts:
        """Element by element; raises if a gradient is in it twice, or gradients of other elements are."""
        total = []
        for low, high, contents in together(operands):
            total.append(Part(low, high, self._summed(contents, low, high, rank, op, ref)))
        return total

    def _summed(self, contents: Sequence[Content], low: int, high: int, rank: int, op: Any, ref: Ref) -> Content:
        added = [content for content in contents if content.kind != CONSTANT or content.key != 0]
        if len(added) < 2:
            return added[0] if added else contents[0]
        if {content.kind for content in added} != {GRADIENT}:
            mixed = Content(MIXED, self.version("sum", *sorted(added, key=repr)), None)
            return sum_of_parameters(added) or sum_of_squares(added) or sum_of_products(added) or mixed
        tokens, weight, sparse, narrowed = added[0].key
        shift = added[0].shift or 0
        names = self.tensors(low + shift, high + shift)
        for content in added[1:]:
            other: Sum = content.key
            if content.shift != added[0].shift:
                there = (low + (content.shift or 0), high + (content.shift or 0))
                self.fail(f"{op.name!r} adds gradients of {self.tensors(*there)} to those of {names}", rank, op)
            if tokens & other.tokens:
                self.fail(f"{op.name!r} sums {names} a second time", rank, op)
            if other.weight != weight:
                self.fail(f"{op.name!r} adds gradients of {names} that were scaled differently", rank, op)
            tokens, sparse, narrowed = tokens | other.tokens, sparse | other.sparse, narrowed | other.narrowed
        return Content(GRADIENT, Sum(tokens, weight, sparse, narrowed), shift)

    # Messages

    def _send(self, op: Any, event: Event) -> None:
        self._leave(op, event.rank, op.to, op.rail)

    def _reply(self, op: Any, event: Event) -> None:
        self._leave(op, event.rank, self.source[event.rank, event.turn, op.to], 0)

    def _leave(self, op: Any, rank: int, to: int, rail: int) -> None:
        self.sent[rank, to, op.channel, rail, op.tag].append([self.get(ref, rank, op) for ref in op.reads])

    def _recv(self, op: Any, event: Event) -> None:
        source = -1 if event.source is None else event.source
        self.source[event.rank, event.turn, op.name] = source
        message = self.sent[source, event.rank, op.channel, getattr(op, "rail", 0), op.tag].popleft()
        for ref, parts in zip(op.writes, message, strict=True):
            self.put(ref, event.rank, op, parts)

    _recv_any = _recv

    def _collective(self, op: Collective, event: Event) -> None:
        collectives.follow(self, op, event)

    # Shared memory

    def _shared_read(self, op: Any, event: Event) -> None:
        self.put(op.writes[0], event.rank, op, self.get(op.reads[0], event.rank, op))

    def _shared_add(self, op: SharedAdd, event: Event) -> None:
        track = Track(self, op, event)
        if any(part.content.kind == DIFFERENCE for part in track.read(0)):
            return self._pulled(op, track)
        new = []
        for low, high, summed, (target,) in track.gradients(track.read(0), track.held(0)):
            version = self.version("shared add", op.scale, summed, target)
            track.applied(low, high, low + (target.shift or 0), summed, target, version)
            new.append(Part(low, high, target._replace(key=version)))
        track.put(0, new)

    def _pulled(self, op: SharedAdd, track: Track) -> None:
        """The centre's half of an elastic exchange, with memory that all ranks share."""
        new = []
        for low, high, (difference, centre) in together([track.read(0), track.held(0)]):
            kinds = difference.kind, centre.kind
            if (*kinds, op.scale) != (DIFFERENCE, CENTRE, 1.0) or difference.shift != centre.shift:
                track.fail(f"adds {kinds[0]} to {kinds[1]}: to a centre it adds elastic differences, as they are")
            worker, seen = difference.key
            origin = low + (centre.shift or 0)
            track.exchanged("centre", origin, origin + high - low, (worker,), seen)
            version = self.version("shared add", difference, centre)
            track.follows(version, centre, Content(PARAMETER, worker))
            new.append(Part(low, high, centre._replace(key=version)))
        track.put(0, new)

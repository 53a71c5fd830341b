"""One local operation of one rank, as a kernel's `follow` sees it: what it may read, apply and leave behind.

It holds the rules of updates: whose gradients, computed with which parameters, are applied to what, each once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gradsync.engine.progress import Event
from gradsync.kernels import SCALED, UNSCALED, Message
from gradsync.plan import Ref
from gradsync.plan.content import CENTRE, GRADIENT, NOTHING, PARAMETER, Content, Part, Parts, Sum, terms, together

if TYPE_CHECKING:
    from gradsync.check.contents import Run

KEPT = ("residual", "state")  # roles of what an operation keeps beside the sum that it declares


class Track:
    """One local operation of one rank; see `gradsync.kernels.Track`."""

    def __init__(self, run: Run, op: Any, event: Event):
        self.run, self.op, self.event, self.rank = run, op, event, event.rank
        self.elements, self.workers = run.elements, len(run.workers)

    @property
    def times(self) -> int:
        """How often the same has been done before; see `kernels.Track`."""
        return self.run.plan.role_of[self.rank].times(self.op.name, self.event.turn)

    def read(self, number: int) -> Parts:
        """What an operand holds."""
        return self.run.get(self.op.reads[number], self.rank, self.op)

    def held(self, number: int) -> Parts:
        """What one of the results held before."""
        ref = self.op.writes[number]
        return self.run.covers[self.rank][ref.buffer].read(*self.run.bounds(ref, self.rank))

    def put(self, number: int, parts: Sequence[Part]) -> None:
        """What one of the results holds now."""
        self.run.put(self.op.writes[number], self.rank, self.op, parts)

    def sum(self, operands: Sequence[Parts]) -> Parts:
        """Element by element."""
        for number, parts in enumerate(operands):
            for low, high, content in parts:
                if content.kind == NOTHING:
                    self.fail(f"adds elements {low} to {high - 1} of operand {number}, which nothing has written")
        return self.run.sum(operands, self.rank, self.op, self.op.writes[0])

    def dtype(self, ref: Ref) -> str:
        """The type of a range."""
        return self.run.plan.buffer[ref.buffer].dtype

    def version(self, *what: Hashable) -> int:
        """A number for what a value was computed from."""
        return self.run.version(*what)

    def follows(self, version: int, *before: Content) -> None:
        """A version holds the gradients that others hold."""
        for content in before:
            self.run.hold(version, self.run.holds(content))

    def fail(self, problem: str) -> NoReturn:
        """Raises ContentError that begins with the operation."""
        self.run.fail(f"{self.op.name!r} {problem}", self.rank, self.op)

    def sent(self, number: int, message: Message) -> None:
        """A sparse message, which somebody must decode."""
        self.run.messages[number] = message
        self.run.encoded[number] = self.rank, self.event.step, self.op.name
        self.run.encoded_in.setdefault(self.event.turn, set()).add(number)

    def message(self, number: int) -> Message:
        """The sparse message of that number."""
        return self.run.messages[number]

    def received(self, number: int) -> None:
        """Somebody decodes it."""
        self.run.encoded.pop(number, None)

    def gradients(self, gradient: Parts, *state: Parts) -> Iterator[tuple[int, int, Sum, tuple[Content, ...]]]:
        """What may be applied to the first of `state`, part by part; see `kernels.Track`."""
        weights = {part.content.key.weight for part in gradient if part.content.kind == GRADIENT}
        if len(weights) > 1:
            self.fail("takes gradients that were scaled differently")
        for low, high, (content, *held) in together([gradient, *state]):
            if content.kind != GRADIENT:
                self.fail(f"missing gradient: it takes gradients and finds {content.kind}")
            summed: Sum = content.key
            names = self.run.tensors(low + (content.shift or 0), high + (content.shift or 0))
            if held and held[0].kind not in (PARAMETER, CENTRE):
                self.fail(f"applies gradients of {names} to {held[0].kind}")
            if held and held[0].shift != content.shift:
                self.fail(f"applies gradients of {names} to other elements")
            if held:
                self._refuse_parameters(summed, names, low, high, held[0])
                self._refuse_scaler(summed, names)
            yield low, high, summed, tuple(held)

    def refuse_others(self) -> None:
        """Raises if what the operation reads are not the gradients that it requires."""
        requires = self.op.requires
        if requires is None:
            return
        operands = [self.read(number) for number in range(len(self.op.reads))]
        parts = [part for operand in operands for part in operand]
        gradients = [part for part in parts if part.content.kind == GRADIENT]
        if parts and not gradients and all(operands):  # a rank's piece of a short range may have no element
            self.fail(f"missing gradient: it requires {requires!r} and finds {parts[0].content.kind}")
        for low, high, (_, summed, shift) in gradients:
            names = self.run.tensors(low + (shift or 0), high + (shift or 0))
            if summed.sparse and requires != "sparse_sum":  # what travelled whole is a sparse sum as well
                self._refuse(names, repr(requires))
            self.refuse_missing(summed, names)

    def complete(self, summed: Sum, start: int, stop: int) -> None:
        """Raises unless these gradients of elements start .. are of all ranks; see `kernels.Track`."""
        self.refuse_missing(summed, self.run.tensors(start, stop))

    def refuse_missing(self, summed: Sum, names: str) -> None:
        """Raises if they are not of all ranks, of each the same passes."""
        owners = self.run.owners(summed.tokens)
        passes = set().union(*owners.values()) if owners else set()
        lacking = [rank for rank in self.run.workers if set(owners.get(rank, ())) != passes]
        if lacking:
            more = ", ..." if lacking[4:] else ""
            self._refuse(names, f"the gradients of rank(s) {', '.join(map(str, lacking[:4]))}{more}")

    def _refuse(self, names: str, what: str) -> NoReturn:
        problem = f"missing gradient: {names} reaches {self.op.name!r} without {what}: no message carries it"
        self.run.fail(problem, self.rank, self.op)

    def _refuse_parameters(self, summed: Sum, names: str, low: int, high: int, target: Content) -> None:
        """Raises if gradients were computed with other parameters than each other's, or than those they change."""
        owners = self.run.owners(summed.tokens)
        several = len(owners) > 1
        if several and (apart := self.run.drifted(summed.tokens)):
            self.fail(
                f"applies gradients of {names} that rank {apart[0]} and rank {apart[1]} computed with different "
                "parameters or statistics: ranks have drifted apart"
            )
        if not several and self.rank not in owners:
            return  # a server: its workers may have older parameters
        if self._shared():
            return  # so may those that share memory
        for rank, numbers in owners.items():
            for number in numbers:
                origin = low + (target.shift or 0)
                seen = self.run.seen[rank, number].parameters.read(origin, origin + high - low)
                if any(part.content.key != target.key for part in seen):
                    self.fail(f"applies gradients of {names} to other parameters than they were computed with")
            return  # all of them computed with the same ones

    def _shared(self) -> bool:
        return any(self.run.plan.buffer[ref.buffer].shared for ref in self.op.writes)

    def _scaler(self) -> Content | None:
        """The scaler that the operation changes, or else reads; None: it doesn't know of any."""
        for refs, contents in ((self.op.writes, self.held), (self.op.reads, self.read)):
            for number, ref in enumerate(refs):
                if self.run.plan.buffer[ref.buffer].role == "scaler":
                    return contents(number)[0].content
        return None

    def _refuse_scaler(self, summed: Sum, names: str) -> None:
        """Raises if these gradients have a loss scale that the operation doesn't take out of them."""
        scaler = self._scaler()
        for rank, numbers in self.run.owners(summed.tokens).items():
            if any(self.run.seen[rank, number].scaler != scaler for number in numbers):
                able = f"only kernels that end with {SCALED} or {UNSCALED} take one out"
                self.fail(
                    f"applies gradients of {names} that rank {rank} computed under another loss scale than it takes "
                    f"out of them: {'its scaler has changed' if scaler else able}"
                )

    def decides(self, number: int, scaler: Content, summed: Sum) -> None:
        """Raises unless all decide by one norm of all ranks' gradients; see `kernels.Track`."""
        names = self.run.tensors(0, self.elements)
        self.refuse_missing(summed, names)
        self._refuse_scaler(summed, names)
        norm, tokens = self.op.reads[number], summed.tokens
        before = self.run.decided.setdefault(scaler, (norm, tokens))
        if before[1] != tokens:
            self.fail("takes a loss scale that never moves: one that is too large would make it skip every step")
        if before[0] != norm:
            self.fail("decides whether a step is skipped by another norm than others do, which may decide otherwise")

    def applied(self, start: int, stop: int, origin: int, summed: Sum, before: Content, version: int) -> None:
        """Raises if other updates took these gradients, or where another one of `before` is lost."""
        self.run.hold(version, self.run.holds(before) | summed.tokens)
        new = []
        # a sum is applied to one version, whoever does it; what is of one rank, by each to a version of his own
        ranks = tuple(self.run.owners(summed.tokens))
        owners = ranks if len(ranks) > 1 else (self.rank,)
        use = summed.tokens, owners, before.key, version
        if ranks == (self.rank,):
            self.run.began[version] = self.run.began.get(before.key, before.key)
        for low, high, content in self.run.uses.read(origin, origin + stop - start):
            names = self.run.tensors(origin + low, origin + high)
            known: frozenset[tuple[int, tuple[int, ...], Hashable, int]] = content.key
            for tokens, other_owners, other_before, other in known:
                if other == version:
                    continue
                if tokens & summed.tokens:
                    self.fail(f"applies gradients of {names} that another update has applied")
                if (other_owners, other_before) == use[1:3]:
                    self.fail(f"updates {names} as they were before another update, which is lost")
            new.append(Part(low, high, Content("uses", known | {use})))
        self.run.uses.write(origin, new)

    def synchronised(self, start: int, stop: int, summed: Content, workers: float) -> tuple[int, str]:
        """The version that all of these parameters began from, and their names; see `kernels.Track`."""
        run, names = self.run, self.run.tensors(start + (summed.shift or 0), stop + (summed.shift or 0))
        versions, centres = terms(summed)
        if not versions or centres:
            self.fail(f"takes the sum of all ranks' parameters of {names}, and finds {summed.kind}")
        if len(versions) != workers:
            self.fail(f"divides by {workers:g} a sum of {len(versions)} parameters of {names}")
        if any(version not in run.began for version in versions):
            self.fail(f"averages parameters of {names} that a rank has not changed since all had the same")
        began = {run.began[version] for version in versions}
        if len(began) > 1:
            self.fail(f"averages parameters of {names} that began from different ones: ranks have drifted apart")
        (first,) = began
        steps: dict[int, list[int]] = {}
        for version in versions:
            for rank, passes in run.owners(run.held_in(version) & ~run.held_in(first)).items():
                if rank in steps:
                    self.fail(f"averages the parameters of {names} of rank {rank} a second time")
                steps[rank] = passes
        wanted = max(steps.values())
        if lacking := [rank for rank in run.workers if steps.get(rank) != wanted]:
            self.fail(
                f"averages parameters of {names} without all steps of rank {lacking[0]}: every rank's parameters are "
                "in the mean, after as many steps as the others'"
            )
        return first, names

    def averaged(self, version: int, summed: Content) -> None:
        """A version was made of the mean of these parameters."""
        self.follows(version, summed)
        self.run.averaged[version] = terms(summed).parameters

    def kept_for(self, version: int) -> tuple[int, ...]:
        """The versions whose moments go with this one; see `kernels.Track`."""
        return (version, *self.run.averaged.get(version, ()))

    def exchanged(self, side: str, start: int, stop: int, workers: Sequence[int], centre: int) -> None:
        """Raises if this rank has made the very exchange before."""
        cover = self.run.pairs[side]
        place = self.rank, self.event.step, self.op.name
        made = {((worker, centre), place, times) for worker, times in Counter(workers).items()}
        pairs = {pair for pair, _, _ in made}
        parts = cover.read(start, stop)
        for _, _, content in parts:
            if any(pair in pairs and before[0] == self.rank for pair, before, _ in content.key):
                self.fail("makes an exchange of the same parameters and centre a second time")
        cover.write(
            start,
            [part._replace(content=Content("pairs", part.content.key | made)) for part in parts],
        )

    def refuse_incomplete(self) -> None:
        """Raises if the operation declares a sum that is none."""
        declared, joins = self.op.postcondition, self.op.kernel == "join"  # a collective, which sums whatever it gets
        kept = [self.run.plan.buffer[ref.buffer].role in KEPT for ref in self.op.writes]
        if all(kept):
            self.fail(f"declares {declared!r} of gradients and leaves none")
        for number in (number for number, is_kept in enumerate(kept) if not is_kept):
            for low, high, content in self.held(number):
                if content.kind == GRADIENT and (joins or bool(content.key.sparse) is (declared == "sparse_sum")):
                    shift = content.shift or 0
                    self.refuse_missing(content.key, self.run.tensors(low + shift, high + shift))
                elif not joins:
                    self.fail(f"declares {declared!r} of gradients and leaves {content.kind}")

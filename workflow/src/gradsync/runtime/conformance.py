"""Does a plan, executed on these ranks with this model and these samples, compute what the oracle says?

Before a launch trains, every plan runs some steps in float64, and the oracle runs all ranks' shards in turn on rank 0.
All ranks, and everything that lasts from turn to turn, are compared tensor by tensor: a bias whose gradient is lost is
a small part of a model, but differs by all of its own change.

Large models run in float32, step by step from equal state: from the order of sums alone, float32 over several steps
drifts by a third if there is batch normalisation. Receives from anybody are replayed in the order in which messages
came. What divides gradients by their own size, as Adam does, runs in
float64 whatever the model: it makes whole steps of the rounding of gradients that are 0, as those of BERT's key biases.
So does what selects gradients by their size: one that rounding lifts over another is sent whole, or not at all.
A model of one's own whose loss does not compute in float64 runs in float32.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from gradsync import optimizers
from gradsync.engine import oracle
from gradsync.errors import RunError
from gradsync.kernels import ENCODE
from gradsync.learning_rates import UNCHANGED, LearningRate
from gradsync.plan import KEYED, PASSING, Buffer, Plan, RecvAny
from gradsync.plan.trace import Span
from gradsync.runtime import data
from gradsync.runtime.compute import (
    FIRST_LOSS_SCALE,
    Forward,
    Loss,
    ModelCompute,
    begin_centre,
    bind,
    bind_statistics,
    oracle_gradient,
    statistics,
)
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups
from gradsync.runtime.models import brought

LARGEST_IN_FLOAT64 = 40_000_000  # parameters; above, float32 saves memory

Gradient = Callable[[int, int, np.ndarray], np.ndarray]
Buffers = dict[str, np.ndarray]
Arrivals = dict[tuple[int, int, str], int]
"""(rank, turn, receive-from-any) -> source."""


class Tolerance(NamedTuple):
    """How far a tensor may be off: a share of its own change, plus one of the largest change of a tensor in its buffer.

    Sums differ in order, and forward and backward in what follows from that. The second share is for tensors whose
    change is rounding alone, as that of a bias before batch normalisation, which an optimizer may divide by its `eps`.
    """

    own: float
    any: float


TOLERANCE = {torch.float64: Tolerance(1e-7, 1e-12), torch.float32: Tolerance(2e-3, 2e-6)}
MOST_DIVIDED = 1e-4  # of the largest change, whatever `eps` is: what is lost shows


def tolerance(plan: Plan, dtype: torch.dtype) -> Tolerance:
    """What is allowed for a plan that runs in a type."""
    allowed, optimizer = TOLERANCE[dtype], optimizers.of(plan)
    if optimizer is None or optimizer.eps is None:
        return allowed
    return allowed._replace(any=max(allowed.any, min(MOST_DIVIDED, torch.finfo(dtype).eps / optimizer.eps)))


@dataclass(frozen=True)
class Difference:
    """The largest difference of one tensor of one buffer on one rank, and how much of what is allowed that is."""

    rank: int
    buffer: str
    tensor: str
    largest: float
    of_allowed: float


def exactness(model: torch.nn.Module, plans: Sequence[Plan]) -> torch.dtype:
    """The type in which the plans of a model are held against the oracle."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    divided = any(optimizer.eps is not None for optimizer in map(optimizers.of, plans) if optimizer is not None)
    selected = any(op.verb == "local" and op.kernel.startswith(ENCODE) for plan in plans for op in plan.roles[0].flat)
    return torch.float64 if parameters <= LARGEST_IN_FLOAT64 or divided or selected else torch.float32


def _computes_in_float64(model: torch.nn.Module, rank: int) -> bool:
    """Whether a model does, as one of one's own may not; rank 0 tries. Collective."""
    if not brought.brings(model):
        return True
    told = [rank == 0 and brought.computes_in_float64(model)]
    dist.broadcast_object_list(told, src=0)
    return told[0]


class Held:
    """Plans are held against the oracle one by one, on copies of `first`. Collective over all ranks."""

    def __init__(
        self,
        loaded: data.Data,
        first: torch.nn.Module,
        loss: Loss,
        seed: int,
        rank: int,
        groups: Groups,
        turns: int,
        plans: Sequence[Plan],
        rate: LearningRate = UNCHANGED,
        places: Sequence[int] = (),
    ):
        """`places`: the ranks that have samples, in order (empty: all of them)."""
        self.place = {each: place for place, each in enumerate(places)}
        self.loaded, self.loss, self.seed, self.rank, self.groups = loaded, loss, seed, rank, groups
        self.turns, self.rate = turns, rate
        self.dtype = exactness(first, plans) if _computes_in_float64(first, rank) else torch.float32
        self.name = str(self.dtype).removeprefix("torch.")
        self.first, self.pool = first, Pool()
        self.device = groups.device
        self.mirror = _Mirror(self) if rank == 0 else None

    def copy(self) -> torch.nn.Module:
        """A copy of the model with its first parameters."""
        return copy.deepcopy(self.first).to(self.device.torch_device, self.dtype)

    def shard(self, number: int, rank: int) -> data.Shard:
        """What a rank trains on in a pass."""
        return data.shard(self.loaded, number, self.place.get(rank, rank), self.dtype, self.device)

    def against_oracle(self, plan: Plan) -> dict[str, Any]:
        """Steps, type, largest difference of a parameter (float32: as a share of the largest change), the worst tensor.

        Raises RunError that names rank, buffer and tensor if something is beyond its tolerance.
        """
        executor = prepare(plan, self.rank, self.groups, dtype=self.dtype, pool=self.pool, rate=self.rate)
        buffers = executor.buffers
        names = {role: plan.holding(role) or "" for role in ("parameter", "statistics", "scaler")}
        model = self.copy()
        bind(model, plan, buffers[names["parameter"]])
        begin_centre(plan, buffers)
        if names["statistics"]:
            bind_statistics(model, buffers[names["statistics"]])
        compute = ModelCompute(
            Forward(model, self.loss, self.rank, self.seed),
            lambda number: self.shard(number, self.rank),
            name=plan.name,
            scaler=buffers.get(names["scaler"]),
            queued=self.device.queued,
            passes=plan.passes,
        )
        kept = [buffer for buffer in plan.buffers if buffer.role not in PASSING]
        if self.mirror is not None:
            self.mirror.begin()
        steps = self.turns if self.dtype == torch.float64 else 1  # at a time
        before = self._states(plan, kept, buffers)
        anybody = any(isinstance(op, RecvAny) for role in plan.roles for op in role.flat)
        differences: list[Difference] = []
        for first in range(0, self.turns, steps):
            begun = executor.turn
            executor.run(steps, compute, record=anybody)
            compute.settle()
            arrivals = _arrivals(executor.spans, begun) if anybody else None
            executor.spans.clear()
            after = self._states(plan, kept, buffers)
            if self.mirror is not None:
                expected = self.mirror.evaluated(plan, before, first, steps, arrivals)
                for rank in range(plan.ranks):
                    if not rank or any(states[rank] is not states[0] for states in (before, after, expected)):
                        differences += self._differences(plan, kept, rank, before, expected, after)
            before = after
        compute.close()
        verdict: list[Any] = [None]
        if self.rank == 0:
            worst = max(differences, key=lambda each: each.of_allowed)
            verdict = [(worst, max(each.largest for each in differences if each.buffer == names["parameter"]))]
        dist.broadcast_object_list(verdict, 0)
        worst, largest = verdict[0]
        if not worst.of_allowed <= 1:
            raise RunError(
                f"scheme {plan.name!r} does not compute what its plan says: after {self.turns} {self.name} steps "
                f"{worst.tensor!r} of {worst.buffer!r} on rank {worst.rank} differs from the oracle's by "
                f"{worst.largest:.3g}, {worst.of_allowed:.3g} times what is allowed"
            )
        return {
            "oracle_steps": self.turns,
            "oracle_dtype": self.name,
            "oracle_difference": largest,
            "oracle_worst": f"{worst.of_allowed:.1g} of what is allowed: {worst.tensor}, {worst.buffer}, "
            f"rank {worst.rank}",
        }

    def _states(self, plan: Plan, kept: list[Buffer], buffers: dict[str, torch.Tensor]) -> list[Buffers]:
        """What every rank holds, on rank 0; it is the very same object if it equals rank 0's to the bit. Collective."""
        own_buffers = {buffer.name: buffers[buffer.name].cpu().contiguous() for buffer in kept}
        digests = [""] * plan.ranks
        dist.all_gather_object(digests, _digest(*(value.numpy().data for value in own_buffers.values())))
        if self.rank == 0:  # which keeps them while turns are run; those of other ranks are sent at once
            own_buffers = {name: value.clone() for name, value in own_buffers.items()}
        states = [{name: value.numpy() for name, value in own_buffers.items()}] * plan.ranks
        for rank in range(1, plan.ranks):
            if digests[rank] == digests[0]:
                continue
            if self.rank == rank:
                for value in own_buffers.values():
                    dist.send(value, 0)
            elif self.rank == 0:
                received = {
                    name: value.new_empty(plan.shards.elements(name, rank)) for name, value in own_buffers.items()
                }
                for value in received.values():
                    dist.recv(value, rank)
                states[rank] = {name: value.numpy() for name, value in received.items()}
        return states if self.rank == 0 else []

    def _differences(
        self,
        plan: Plan,
        kept: list[Buffer],
        rank: int,
        before: list[Buffers],
        expected: list[Buffers],
        after: list[Buffers],
    ) -> Iterator[Difference]:
        """The differences of every tensor of a rank."""
        allowed_of = tolerance(plan, self.dtype)
        for buffer in kept:
            tensors = list(_by_tensor(plan, buffer, rank))
            initial, reference, actual = (states[rank][buffer.name] for states in (before, expected, after))
            moved, off = np.abs(reference - initial), np.abs(reference - actual)
            if not len(moved):
                continue
            most = float(moved.max()) or float(np.abs(reference).max()) or 1.0
            for name, start, stop in tensors:
                largest = float(off[start:stop].max())
                allowed = allowed_of.own * float(moved[start:stop].max()) + allowed_of.any * most
                shown = largest if self.dtype == torch.float64 else largest / most
                yield Difference(rank, buffer.name, name, shown, largest / allowed if largest == largest else np.inf)


def _by_tensor(plan: Plan, buffer: Buffer, rank: int) -> Iterator[tuple[str, int, int]]:
    """Tensor -> elements [start, stop) of what a rank has of a buffer; all of it, if it is not keyed by parameters."""
    if buffer.role not in KEYED:
        yield buffer.name, 0, plan.shards.elements(buffer.name, rank)
        return
    for held in plan.shards.held(buffer.name, rank):
        for tensor in plan.tensors:
            start, stop = max(tensor.start, held.start), min(tensor.stop, held.stop)
            if start < stop:
                yield tensor.name, held.at + start - held.start, held.at + stop - held.start


def _digest(*values: memoryview | bytes) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value)
    return digest.hexdigest()


def _arrivals(spans: list[Span], begun: int) -> Arrivals:
    """From whom all ranks received in the turns from `begun` on, which the oracle counts from 0. Collective."""
    own = {(span.rank, span.turn - begun, span.operation): span.source for span in spans if span.verb == "recv_any"}
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return {where: source for arrivals in every for where, source in arrivals.items()}


class _Mirror:
    """The model with which the oracle computes gradients: one on rank 0 that stands for every rank's in turn.

    Statistics of batch normalisation are those of rank 0, as after each turn on every rank of a plan that sends them.
    """

    def __init__(self, held: Held):
        self.held, self.model = held, held.copy()
        self.initial = [buffer.clone() for buffer in self.model.buffers()]
        # gradients of equal parameters, once for all plans, with the statistics that rank 0's forward left
        self.cache: dict[tuple[int, int, str], tuple[np.ndarray, list[torch.Tensor]]] = {}

    def begin(self) -> None:
        """Go back to the first statistics: a plan is compared from its first step on."""
        self._set(self.initial)

    def evaluated(
        self, plan: Plan, before: list[Buffers], first: int, turns: int, arrivals: Arrivals | None = None
    ) -> list[Buffers]:
        """Buffers of every rank after `turns` from step `first` on; the very same object for ranks that are alike."""
        gradient, held = self._gradient(plan), self.held
        ends = oracle.evaluate(
            plan, turns, gradient, before, arrivals=arrivals, dtype=held.name, first=first, rate=held.rate
        )
        part = plan.holding("statistics")
        if part is not None:
            flat = torch.cat([buffer.reshape(-1) for buffer in statistics(self.model)]).cpu().numpy()
            for end in ends:
                end[part] = flat
        kept = before[0].keys()
        same = [
            all(np.array_equal(end[name], ends[0][name]) for name in kept) and before[rank] is before[0]
            for rank, end in enumerate(ends)
        ]
        return [ends[0] if alike else end for alike, end in zip(same, ends, strict=True)]

    def _set(self, values: list[torch.Tensor]) -> None:
        for buffer, value in zip(self.model.buffers(), values, strict=True):
            buffer.copy_(value)

    def _gradient(self, plan: Plan) -> Gradient:
        held = self.held
        compute = oracle_gradient(
            lambda peer: Forward(self.model, held.loss, peer, held.seed),
            plan,
            lambda peer, number: held.shard(number, peer),
        )
        layout = hashlib.sha256(repr(plan.tensors).encode()).hexdigest()
        factor = FIRST_LOSS_SCALE / plan.passes if plan.holding("scaler") else 1.0

        def gradient(peer: int, number: int, values: np.ndarray) -> np.ndarray:
            before = [buffer.clone() for buffer in self.model.buffers()]
            # forward normalises by the batch: statistics decide nothing but statistics
            past = b"" if peer else b"".join(buffer.cpu().numpy().tobytes() for buffer in before)
            key = (peer, number, layout + _digest(values.data, past))
            if key not in self.cache:
                computed = compute(peer, number, values)
                self.cache[key] = (
                    computed,
                    [buffer.clone() for buffer in self.model.buffers()] if not peer else before,
                )
            computed, after = self.cache[key]
            self._set(after if not peer else before)
            return computed * factor

        return gradient

"""What trains in turn in one launch: plans, and the references to compare them with (peers are in `peers/`).

Contenders have the same model, seed and samples, and are timed alike: an iteration is the period between the ends of
two turns, sampling included; the first turn of a block is not timed.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from gradsync.engine.waiting import stamps, waited, with_waits
from gradsync.learning_rates import UNCHANGED, LearningRate
from gradsync.plan import COMPUTE, PASSING, Collective, Local, Plan
from gradsync.plan.trace import Span, Trace
from gradsync.runtime.alignment import offsets
from gradsync.runtime.compute import Forward, ModelCompute, Sample, bind, bind_statistics, statistics
from gradsync.runtime.enqueue import prepare
from gradsync.runtime.execute import Pool
from gradsync.runtime.group import Groups

NO_COMMUNICATION, ONE_RANK = "no_communication", "one_rank"
TRACE_TURNS = 3
MOST_OPERATIONS = 16  # of a plan, whose times are kept one by one


@dataclass
class Record:
    """What was measured of a contender so far, over all seeds: plain values, so that a checkpoint can hold it."""

    blocks: list[float] = field(default_factory=list)  # median iteration seconds of each block
    rows: list[tuple[int, int, int, float, float | None]] = field(default_factory=list)
    """(seed, turn, block, loss, iteration seconds if it was timed)."""
    accuracy: list[tuple[int, int, float]] = field(default_factory=list)  # (seed, turn, test accuracy after it)
    bleu: list[tuple[int, int, float]] = field(default_factory=list)  # (seed, turn, BLEU in percent), of translations
    exposed: list[float] = field(default_factory=list)  # communication seconds of a turn, not hidden
    waiting: list[float] = field(default_factory=list)  # seconds of a turn in which rank 0 only waits for other ranks
    computation: list[float] = field(default_factory=list)  # computation seconds of a turn
    reading: list[tuple[float, float]] = field(default_factory=list)
    """By block: seconds in which samples of a turn are read and decoded, and those in which the rank waits for them."""
    operations: dict[str, list[float]] = field(default_factory=dict)
    """By operation beside computation, its seconds in a turn, by block; of plans with few of them."""
    absorbed: list[float] = field(default_factory=list)  # host seconds of a turn that replayed waits hid, by block
    phases: list[int] = field(default_factory=list)  # the phase of each block, from 0; empty: it has none
    switches: list[tuple[int, int, float]] = field(default_factory=list)  # (seed, turn that follows, seconds)

    def block(self, seed: int, first: int, losses: list[float], ends: list[float], trace: Trace | None = None) -> None:
        """Add a block that began with turn `first`; `trace` is that of rank 0 of a plan, on the clock of `ends`."""
        timed = list(pairwise(ends))
        seconds = [after - before for before, after in timed]
        number = len(self.blocks)
        for i, loss in enumerate(losses):
            self.rows.append((seed, first + i, number, loss, seconds[i - 1] if i else None))
        self.blocks.append(float(np.median(seconds)))
        if trace is not None:
            # of exactly the turns that are timed, which the first is not
            self.exposed += [trace.exposed_communication_seconds(0, window) for window in timed]
            self.waiting += [trace.waiting_seconds(0, window) for window in timed]
            self.computation += [trace.computation_seconds(0, window) for window in timed]
            self._add_operations(trace, ends)

    def _add_operations(self, trace: Trace, ends: list[float]) -> None:
        """The median of each operation over the turns that are timed, without waiting for other ranks."""
        seconds: dict[str, list[float]] = {}
        for span in trace.spans:
            if span.rank == 0 and span.lane not in trace.computing and ends[0] <= span.end <= ends[-1]:
                seconds.setdefault(span.operation, []).append(span.end - span.start - span.waited)
        if len(seconds) <= MOST_OPERATIONS:
            for name, each in seconds.items():
                self.operations.setdefault(name, []).append(float(np.median(each)))

    def csv(self, epoch_of: Callable[[int], int]) -> str:
        """One row per turn; `epoch_of` a turn, from 0. Only translations have a column `bleu`."""
        evaluated = {"accuracy": self.accuracy, **({"bleu": self.bleu} if self.bleu else {})}
        reached = [{(seed, turn): value for seed, turn, value in values} for values in evaluated.values()]
        lines = [",".join(("seed,step,epoch,block,loss,iteration_seconds", *evaluated))]
        for seed, turn, block, loss, seconds in self.rows:
            values = (each.get((seed, turn)) for each in reached)
            cells = (seed, turn, epoch_of(turn), block, loss, seconds, *values)
            lines.append(",".join("" if cell is None else repr(cell) for cell in cells))
        return "\n".join(lines) + "\n"


class Contender(ABC):
    """One way to train a model of its own."""

    name: str
    model: torch.nn.Module
    forward: Forward
    losses: list[float]
    turn: int

    @abstractmethod
    def run(self, turns: int) -> list[float]:
        """Train `turns` turns; gives the end of each (seconds on this machine's clock)."""

    @abstractmethod
    def parameters(self) -> dict[str, torch.Tensor]:
        """Parameters by name, each flattened. Collective."""

    def whole(self) -> torch.nn.Module | None:
        """A model with these parameters that the rank can call alone, which rank 0 has at least. Collective."""
        return self.model

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """(what all ranks hold alike, this rank's own): what a checkpoint needs."""

    @abstractmethod
    def restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """Go on from a state."""

    def close(self) -> None:  # noqa: B027  most have nothing to do
        """Remove the hooks that it has set on the model."""


class Planned(Contender):
    """A plan, executed."""

    def __init__(
        self,
        plan: Plan,
        forward: Forward,
        sample: Sample,
        groups: Groups,
        pool: Pool,
        rate: LearningRate = UNCHANGED,
    ):
        self.name, self.plan, self.forward, self.model = plan.name, plan, forward, forward.model
        self.executor = prepare(plan, forward.rank, groups, pool=pool, rate=rate)
        buffers = self.executor.buffers
        self.flat = buffers[plan.holding("parameter") or ""]
        self.statistics, scaler = (buffers.get(plan.holding(role) or "") for role in ("statistics", "scaler"))
        bind(forward.model, plan, self.flat)
        if self.statistics is not None:
            bind_statistics(forward.model, self.statistics)
        self.compute = ModelCompute(
            *(forward, sample),
            name=plan.name,
            scaler=scaler,
            queued=groups.device.queued,
            passes=plan.passes,
        )
        self.spans: list[Span] = []  # of the last block

    @property
    def turn(self) -> int:  # type: ignore[override]
        """The next turn."""
        return self.executor.turn

    @property
    def losses(self) -> list[float]:  # type: ignore[override]
        """Losses of the turns since it was made."""
        return self.compute.losses

    def run(self, turns: int) -> list[float]:
        """Train one block; only its spans are kept."""
        self.executor.spans.clear()
        self.executor.run(turns, self.compute)
        self.compute.settle()
        self.spans = list(self.executor.spans)
        return self.executor.ends

    def trace(self) -> Trace:
        """The trace of this rank's last block."""
        return dataclasses.replace(self.executor.trace(), spans=tuple(self.spans))

    def held_bytes(self, *roles: str) -> int:
        """What this rank has allocated for buffers of these roles."""
        held = (self.executor.buffers[each.name] for each in self.plan.buffers if each.role in roles)
        return sum(buffer.untyped_storage().nbytes() for buffer in held)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Views of the flat buffer."""
        return {tensor.name: self.flat[tensor.start : tensor.stop] for tensor in self.plan.tensors}

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Every buffer that outlasts a turn: rank 0's for all if the plan makes them alike, else each rank's own."""
        kept = {b.name: self.executor.buffers[b.name] for b in self.plan.buffers if b.role not in PASSING}
        alike = self.plan.alike
        own: dict[str, Any] = {name: value for name, value in kept.items() if name not in alike}
        # counters of batch normalisation, say; and statistics that no plan carries
        own["model"] = list(_loose_buffers(self.forward.model, self.statistics is not None))
        return {"turn": self.turn, **{name: kept[name] for name in alike}}, own

    def restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """Copy the state into the buffers that the model's tensors are views of."""
        for name, value in (*alike.items(), *own.items()):
            if name in self.executor.buffers:
                self.executor.buffers[name].copy_(value)
        loose = _loose_buffers(self.forward.model, self.statistics is not None)
        for buffer, value in zip(loose, own["model"], strict=True):
            buffer.copy_(value)
        self.executor.resume(alike["turn"])

    def close(self) -> None:
        """Remove the hooks."""
        self.compute.close()


def _loose_buffers(model: torch.nn.Module, bound: bool) -> list[torch.Tensor]:
    taken = {id(buffer) for buffer in statistics(model)} if bound else set()
    return [buffer for buffer in model.buffers() if id(buffer) not in taken]


class NoCommunication(Planned):
    """All ranks compute, nothing is sent: the floor of every iteration. Each rank trains for itself."""


class OneRank(Contender):
    """Rank 0 trains alone while the others wait: the speed-up of N ranks is measured against it."""

    def __init__(self, alone: Planned):
        self.name, self.alone, self.forward, self.model = ONE_RANK, alone, alone.forward, alone.model

    @property
    def turn(self) -> int:  # type: ignore[override]
        """The next turn."""
        return self.alone.turn

    @property
    def losses(self) -> list[float]:  # type: ignore[override]
        """Losses of the turns since it was made."""
        return self.alone.losses

    def run(self, turns: int) -> list[float]:
        """Train one block on rank 0."""
        dist.barrier()
        ends = self.alone.run(turns) if self.forward.rank == 0 else [0.0] * turns
        dist.barrier()
        return ends

    def parameters(self) -> dict[str, torch.Tensor]:
        """The parameters, which it shares with `no_communication`."""
        return self.alone.parameters()

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """It has no state of its own."""
        return {}, {}

    def restore(self, alike: dict[str, Any], own: dict[str, Any]) -> None:
        """It has nothing to restore."""


def gathered(plan: Plan, trace: Trace, rank: int, turns: int) -> Trace:
    """The last `turns` of a block on rank 0, with its waits for others, and the very last turns of all ranks.

    All are on rank 0's clock. Collective.
    """
    first = trace.turns - turns
    clocks = offsets()
    own_stamps = stamps(plan, rank, trace.spans, first, turns, clocks[rank].seconds)
    last = [
        span._replace(start=span.start + clocks[rank].seconds, end=span.end + clocks[rank].seconds)
        for span in trace.spans
        if span.turn >= trace.turns - TRACE_TURNS
    ]
    parts: list[Any] | None = [None] * plan.ranks if rank == 0 else None
    dist.gather_object((own_stamps, last), parts)
    if parts is None:
        return trace
    seconds = waited(plan, [stamped for stamped, _ in parts])
    spans = [*trace.spans, *(span for _, part in parts[1:] for span in part)]
    return dataclasses.replace(trace, spans=with_waits(plan, spans, dict(enumerate(seconds)), first))


def saved(trace: Trace) -> Trace:
    """The trace with its last turns alone, as it is saved."""
    return dataclasses.replace(
        trace, spans=tuple(span for span in trace.spans if span.turn >= trace.turns - TRACE_TURNS)
    )


def _of_updates(plan: Plan, operations: Sequence[Any]) -> list[Local]:
    """The updates of parameters, what computes the norms that they read, and what moves their loss scale."""
    wanted = {buffer.name for buffer in plan.buffers if buffer.role in ("parameter", "scaler")}
    chosen: list[Local] = []
    for op in reversed(operations):
        if isinstance(op, Local) and any(ref.buffer in wanted for ref in op.writes):
            chosen.insert(0, op)
            wanted |= {ref.buffer for ref in op.reads if plan.buffer[ref.buffer].role == "scratch"}
    return chosen


def silent(plan: Plan) -> Plan:
    """The plan without its messages: what is computed stays, and waits for nothing but itself.

    Updates beside computation come after it. On every rank all is of whole ranges, and what was dealt to ranks it does
    alone.
    """
    (role,) = plan.roles
    operations: tuple[Any, ...] = role.flat
    computing = [_whole(op) for op in operations if op.lane == COMPUTE and not isinstance(op, Collective)]
    beside = [
        dataclasses.replace(_whole(op), lane=COMPUTE) for op in _of_updates(plan, operations) if op.lane != COMPUTE
    ]
    stay = {op.name for op in (*computing, *beside)}
    body = tuple(
        dataclasses.replace(
            op,
            after=tuple(name for name in op.after if name in stay),
            after_previous=tuple(name for name in op.after_previous if name in stay),
            **({"requires": None} if isinstance(op, Local) else {}),
        )
        for op in (*computing, *beside)
    )
    buffers = tuple(dataclasses.replace(buffer, mine=(), ends=()) for buffer in plan.buffers)
    role = dataclasses.replace(role, body=body)
    return dataclasses.replace(plan, name=NO_COMMUNICATION, buffers=buffers, roles=(role,))


def _whole(op: Any) -> Any:
    """The operation on whole ranges, not on the pieces of a rank."""
    return dataclasses.replace(
        op,
        reads=tuple(ref._replace(mine=()) for ref in op.reads),
        writes=tuple(ref._replace(mine=()) for ref in op.writes),
    )

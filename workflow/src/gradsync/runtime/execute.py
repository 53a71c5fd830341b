"""Execute a plan on real ranks over torch.distributed. The executor reads nothing but the plan.

The compute lane is the calling thread; every other lane is a thread of its own with process groups of its own, and
blocks in each of its operations, so that what the plan makes sequential is sequential. Autograd's hooks only say that
a gradient is there: the order in which messages leave is the plan's. Devices that queue their work have `enqueue.py`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any

import torch
import torch.distributed as dist

from gradsync.collectives import ALL_GATHER, NATIVE, REDUCE_SCATTER, in_memory
from gradsync.engine.oracle import refuse_bytes
from gradsync.errors import RunError
from gradsync.kernels import KERNELS, reads_of
from gradsync.learning_rates import UNCHANGED, Rate
from gradsync.plan import PASSING, Buffer, Collective, Plan, Ref, Reply, Send
from gradsync.plan.trace import Span, Trace
from gradsync.rounds.lowering import lowerable
from gradsync.runtime import native, shared_memory
from gradsync.runtime.group import Groups, agree
from gradsync.runtime.kernels import EXECUTED
from gradsync.runtime.memory_rounds import MemoryRounds
from gradsync.runtime.step import Step
from gradsync.runtime.transfers import Scratch, Transfers
from gradsync.runtime.turns import LaneFailedError, Turns

Pool = dict[tuple[str, int, torch.dtype], torch.Tensor]
RING = "ring"
UNNOTICED_SECONDS = 5e-3  # a shorter wait for a send may have been one for the interpreter
MOST_PENDING = 1024  # sends of one operation that nobody has waited for: each keeps a little memory


class Posted:
    """Sends that have been posted, until they have left."""

    def __init__(self, works: list[dist.Work | None]):
        self.works, self.lock = works, threading.Lock()

    def wait(self) -> None:
        """Block until all have left. Gloo counts waiters: the first thread to come waits, the others wait for it."""
        with self.lock:
            for work in self.works:
                if work is not None:  # None: this rank is not in the group
                    work.wait()
            self.works = []


class Executor(Turns):
    """Runs a plan's role of `rank`; `buffers` (name -> flat tensor) are allocated as the plan says, zeroed.

    Collective over all ranks of the plan. `dtype` replaces the floating-point type of all buffers. Executors with one
    `pool` share the buffers that hold nothing from turn to turn, and must run in turn. `rate` multiplies learning
    rates, which a plan has without their schedule.

    Raises InputError for a plan of bytes of an unknown type.
    """

    now: Callable[[], Any] = staticmethod(time.perf_counter)
    """The current time stamp of the calling lane; None if nothing is recorded and a stamp costs."""

    def __init__(
        self,
        plan: Plan,
        rank: int,
        groups: Groups,
        *,
        dtype: torch.dtype | None = None,
        pool: Pool | None = None,
        rate: Rate = UNCHANGED,
    ):
        refuse_bytes(plan)
        agree(plan, rank)
        super().__init__(plan, rank)
        self.groups, self.device = groups, groups.device
        self.rate = rate
        groups.prepare(plan)
        self.everyone = tuple(range(plan.ranks))
        body = self.body
        self.lane_of = {op.name: op.lane for op in body}
        # operations that another lane waits for: only these wake other lanes
        self.watched = {
            name for op in body for name in (*op.after, *op.after_previous) if self.lane_of[name] != op.lane
        }
        self.posts = {op.name for op in body if isinstance(op, Send | Reply)}
        self.readers = self._readers()
        self.buffers: dict[str, torch.Tensor] = {}
        self.of_peers: dict[str, dict[int, torch.Tensor]] = {}  # of the buffers in `readers`: by rank, its array
        self.files: dict[str, tuple[IO[bytes], threading.Lock]] = {}  # of shared buffers, to lock with
        for buffer in plan.buffers:
            kind = getattr(torch, buffer.dtype)
            kind = dtype if dtype is not None and kind.is_floating_point else kind
            self.buffers[buffer.name] = self._allocate(buffer, kind, pool)
        self.views = {
            op.name: [[self._view(ref) for ref in refs] for refs in (reads_of(op, plan.mesh, rank), op.writes)]
            for op in body
        }
        size = {name: tensor.dtype.itemsize for name, tensor in self.buffers.items()}
        self.bytes = {
            op.name: sum(
                (ref.stop - ref.start) * size[ref.buffer] // plan.mesh.pieces(ref) for ref in op.writes or op.reads
            )
            for op in body
        }
        self.transfers = self._transfers()
        self.finished = dict.fromkeys(self.lane_of, -1)  # the last turn; a send's: the last posted
        self.pending: dict[str, dict[int, Posted]] = {name: {} for name in self.posts}  # turn -> what has been posted
        self.sources: dict[tuple[str, int], list[int]] = {}  # senders to a receive-from-any in a turn, one per reply
        self.replies = Counter(op.to for op in body if isinstance(op, Reply))
        self.spans: list[Span] = []
        self.carried: torch.Tensor | None = None  # added to the gradient of the next turn: what another plan has left

    def _readers(self) -> dict[str, list[int]]:
        """Which ranks read one another's arrays, this rank among them, of each buffer that is summed in memory."""
        readers: dict[str, set[int]] = {}
        for op in (op for role in self.plan.roles for op in role.flat):
            if isinstance(op, Collective) and in_memory(op.algorithm):
                groups = [group for group in self.plan.groups(op) if self.rank in group]
                readers.setdefault(op.writes[0].buffer, {self.rank}).update(*groups)
        return {buffer: sorted(ranks) for buffer, ranks in readers.items()}

    def _transfers(self) -> dict[str, Transfers | MemoryRounds]:
        """The rounds of each collective that is made of rounds here."""
        # tags go by name and not by place: roles that share a collective may have it in different places
        whole = [op for role in self.plan.roles for op in role.flat]
        unused = 1 + max((getattr(op, "tag", 0) for op in whole), default=0)
        names = sorted({op.name for op in whole if isinstance(op, Collective)})
        tags = {name: tag for tag, name in enumerate(names, start=unused)}
        scratch = Scratch()
        made_of_rounds = [self.in_rounds(op) for op in self.body if isinstance(op, Collective)]
        in_one_memory = {op.name: self._read(op) for op in made_of_rounds if op is not None and in_memory(op.algorithm)}
        return in_one_memory | {
            op.name: Transfers(
                *(op, self.rank, self.plan.group(op, self.rank), self.buffers[op.writes[0].buffer], self.groups),
                bounds=self.plan.mesh.bounds(op.writes[0], self.rank),
                tag=tags[op.name],
                scratch=scratch,
            )
            # the first one's scratch holds all
            for op in sorted((op for op in made_of_rounds if op is not None), key=lambda op: -self.bytes[op.name])
            if op.name not in in_one_memory
        }

    def _read(self, op: Collective) -> MemoryRounds:
        """The rounds of a collective that is executed by reading the memory of peers."""
        group, arrays = self.plan.group(op, self.rank), self.of_peers[op.writes[0].buffer]
        bells, bounds = self.groups.bells[op.lane, group], self.plan.mesh.bounds(op.writes[0], self.rank)
        return MemoryRounds(op, self.rank, group, arrays, bells, bounds=bounds)

    def in_rounds(self, op: Collective) -> Collective | None:
        """The collective that is executed by rounds of transfers for `op`; None if the backend executes it.

        Gloo's own reduce-scatter takes as long as an all-reduce, and packs and unpacks what it sends: halves of a ring
        are sent as they lie.
        """
        if op.algorithm != NATIVE:
            return op
        halves = op.kind in (REDUCE_SCATTER, ALL_GATHER) and lowerable(op)
        return dataclasses.replace(op, algorithm=RING, shape=()) if halves else None

    def _view(self, ref: Ref) -> torch.Tensor:
        start, stop = self.plan.shards.place(ref, self.rank)
        return self.buffers[ref.buffer][start:stop]

    def _allocate(self, buffer: Buffer, kind: torch.dtype, pool: Pool | None) -> torch.Tensor:
        if buffer.shared:
            return self._share(buffer, kind)
        elements = self.plan.shards.elements(buffer.name, self.rank)
        if buffer.name in self.readers:
            arrays = shared_memory.one_each(elements, kind, self.rank, self.readers[buffer.name])
            self.of_peers[buffer.name] = arrays
            return arrays[self.rank]
        if pool is None or buffer.role not in PASSING:
            return torch.zeros(elements, dtype=kind, device=self.device.torch_device)
        key = (buffer.name, elements, kind)
        if key not in pool:
            pool[key] = torch.zeros(elements, dtype=kind, device=self.device.torch_device)
        return pool[key]

    def _share(self, buffer: Buffer, kind: torch.dtype) -> torch.Tensor:
        """One array for all ranks of this machine."""
        array, file = shared_memory.one_for_all(buffer.elements, kind, self.rank)
        self.files[buffer.name] = file, threading.Lock()  # each rank's own
        return array

    def trace(self, name: str | None = None) -> Trace:
        """This rank's spans so far, on the clock of this machine."""
        return Trace(
            name or self.plan.name,
            "measured",
            self.turn,
            tuple(self.spans),
            {**self.plan.provenance, "plan": self.plan.digest},
        )

    def take_turn(self) -> Iterator[Step]:
        """As all turns; what was carried is in its gradient then."""
        yield from super().take_turn()
        self.carried = None

    def _pass(self, ops: list[Any], turn: int) -> Step:
        return Step(self, ops, turn, self.record)

    def wait_for(self, op: Any, turn: int) -> bool:
        """Block until everything that `op` waits for in `turn` is finished; returns whether something was not."""
        waited = False
        for names, wanted in ((op.after, turn), (op.after_previous, turn - 1)):
            for name in names:
                if self.finished[name] < wanted:
                    waited = True
                    with self.condition:
                        self.condition.wait_for(partial(self._reached, name, wanted))
                    if self.failure is not None:
                        raise LaneFailedError
                if name in self.posts:
                    self._sent(name, wanted)
        return waited

    def _reached(self, name: str, turn: int) -> bool:
        return self.finished[name] >= turn or self.failure is not None

    def finish(self, op: Any, turn: int, start: Any, record: bool, source: int | None = None) -> Any:
        """Stamp the end, record it, wake the lanes that wait; returns the stamp."""
        end = time.perf_counter()
        if record:
            self.spans.append(Span(self.rank, turn, op.name, op.verb, op.lane, start, end, self.bytes[op.name], source))
        self._mark(op.name, turn)
        return end

    def _mark(self, name: str, turn: int) -> None:
        if name in self.watched:
            with self.condition:
                self.finished[name] = turn
                self.condition.notify_all()
        else:
            self.finished[name] = turn

    def _sent(self, name: str, turn: int) -> None:
        """Block until a send that is posted has left; the lane that needs it to have left waits itself."""
        posted = self.pending[name].get(turn)
        if posted is None:
            return
        start = time.perf_counter()
        try:
            posted.wait()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise RunError(f"rank {self.rank}, turn {turn}, {name!r}, lane {self.lane_of[name]!r}: {reason}") from error
        if (end := time.perf_counter()) > start + UNNOTICED_SECONDS:
            self._lengthen(name, turn, end)
        self.pending[name].pop(turn, None)

    def _lengthen(self, name: str, turn: int, end: float) -> None:
        """A send that was still on its way when somebody came to wait for it lasts until it has left."""
        for place in range(len(self.spans) - 1, -1, -1):
            span = self.spans[place]
            if (span.operation, span.turn) == (name, turn):
                self.spans[place] = span._replace(end=end)
            if span.turn < turn - 1 or (span.operation, span.turn) == (name, turn):
                return

    def _finish_posted(self, name: str, turn: int) -> None:
        """Block until all sends of an operation that were posted before `turn` have left."""
        for earlier in [each for each in list(self.pending[name]) if each < turn]:
            self._sent(name, earlier)

    def do(self, op: Any, turn: int, record: bool) -> None:
        """Wait for what an operation waits for, do it, and record it."""
        self.wait_for(op, turn)
        start = self.now()
        source = None
        try:
            source = self._perform(op, turn)
        except LaneFailedError:
            raise
        except Exception as error:
            raise RunError(
                f"rank {self.rank}, turn {turn}, {op.verb} {op.name!r}, lane {op.lane!r}: {str(error).splitlines()[0]}"
            ) from error
        self.finish(op, turn, start, record, source)

    def _perform(self, op: Any, turn: int) -> int | None:
        reads, writes = self.views[op.name]
        match op.verb:
            case "collective":
                if op.name in self.transfers:
                    self.transfers[op.name].run()
                else:
                    ranks, root = self.plan.group(op, self.rank), self.plan.root(op, self.rank)
                    native.run(op, reads, writes, ranks, self.rank, self.groups.of(op.lane, ranks), root)
            case "local":
                times = self.role.times(op.name, turn)
                arguments = KERNELS[op.kernel].at(op.arguments, times, self.rate(times), self.rank)
                EXECUTED[op.kernel](reads, writes, **arguments)
            case "send" | "reply":
                if len(self.pending[op.name]) >= MOST_PENDING:
                    self._finish_posted(op.name, turn - MOST_PENDING // 2)
                to = self._asker(op, turn) if isinstance(op, Reply) else op.to
                group = self.groups.of(op.channel, self.everyone, getattr(op, "rail", 0))
                self.pending[op.name][turn] = Posted([dist.isend(view, to, group=group, tag=op.tag) for view in reads])
            case "recv":
                group = self.groups.of(op.channel, self.everyone, op.rail)
                for view in writes:
                    dist.recv(view, op.source, group=group, tag=op.tag)
                return op.source
            case "recv_any":
                group = self.groups.of(op.channel, self.everyone)
                source = dist.recv(writes[0], None, group=group, tag=op.tag)
                if source not in op.sources:
                    raise RunError(f"message from rank {source}, expected one of {op.sources}")
                for view in writes[1:]:
                    dist.recv(view, source, group=group, tag=op.tag)
                if op.name in self.replies:
                    self.sources[op.name, turn] = [source] * self.replies[op.name]
                return source
            case "shared_read":
                writes[0].copy_(reads[0])
            case "shared_add":
                if op.locked:
                    self._locked_add(op, reads[0], writes[0])
                else:
                    writes[0].add_(reads[0], alpha=op.scale)
        return None

    def _asker(self, op: Reply, turn: int) -> int:
        """The rank that a reply goes to; the receive on its lane may be turns ahead of the replies."""
        left = self.sources[op.to, turn]
        to = left.pop()
        if not left:
            self.sources.pop((op.to, turn), None)
        return to

    def _locked_add(self, op: Any, value: torch.Tensor, target: torch.Tensor) -> None:
        file, lock = self.files[op.writes[0].buffer]
        with lock:  # between the lanes of this rank, which share the file; the file's own lock is between ranks
            fcntl.flock(file, fcntl.LOCK_EX)
            try:
                target.add_(value, alpha=op.scale)
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)

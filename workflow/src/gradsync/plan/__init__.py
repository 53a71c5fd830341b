"""A plan: the body of a training loop as plain, frozen, serialisable data.

A scheme never runs anything: it plans. The same plan is checked (`check/`), timed (`engine/simulate.py`),
evaluated (`engine/oracle.py`), executed (`runtime/execute.py`) and drawn (`drawing/timeline.py`).

A plan lists, once a *role*, the operations of one turn of the loop in their launch order. Operations of one
*lane* run in that order; lanes overlap. An operation also waits for those it names in `after` (this turn) and
`after_previous` (the turn before; nothing to wait for in the first turn). A send occupies its lane only until it is
posted, every other operation until it is finished.

Two ranks exchange a message over a *channel*, which both name: the send and the receive of equal channel, rail and tag
belong together, in order, whatever lanes they are on. The messages of a channel share its connections.

Every buffer has a *role*, which says what it may hold. Buffers that are keyed by parameters (gradient, parameter,
momentum, residual, centre) are flat and hold the tensors in backward order: the gradient that is ready first lies
first, so that every merged message is one contiguous range.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import MOST_OPERATIONS, MOST_REPEATED

VERSION = 2
COMPUTE = "compute"  # the lane of forward, backward and update; every other lane communicates

DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "uint8": 1}
BYTES = "uint8"  # gradients of a type that nobody knows, as many bytes: planned and simulated, never executed
CHANNEL = "network"  # of transfers that name no other
CLOSED = ConfigDict(extra="forbid")

BufferRole = Literal[
    "gradient", "parameter", "momentum", "residual", "centre", "statistics", "scaler", "scratch", "state"
]
KEYED = ("gradient", "parameter", "momentum", "residual", "centre")  # roles of buffers that are keyed by parameters
PASSING = ("gradient", "scratch")  # roles of buffers that are written before they are read in every turn


class Ref(NamedTuple):
    """Elements [start, stop) of a buffer; with `mine` only the executing rank's piece of that range (see `piece`)."""

    buffer: str
    start: int
    stop: int
    mine: bool = False


def piece(start: int, stop: int, index: int, pieces: int) -> tuple[int, int]:
    """Bounds of one of `pieces` contiguous pieces of [start, stop), sizes as even as they can be."""
    length = stop - start
    return start + index * length // pieces, start + (index + 1) * length // pieces


@dataclass(frozen=True)
class Tensor:
    """A gradient tensor: its place in every buffer that is keyed by parameters."""

    __pydantic_config__ = CLOSED
    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Buffer:
    """A named flat array of each rank; `shared` means one for all ranks (shared memory).

    `role` says what it holds: one of `KEYED`; `statistics` of batch normalisation, which forward changes; the `scaler`
    of the loss; `scratch`, which is written before it is read; or `state`, anything that the caller sets beforehand.
    """

    __pydantic_config__ = CLOSED
    name: str
    elements: int
    dtype: str = "float32"
    shared: bool = False
    role: BufferRole = "scratch"


@dataclass(frozen=True, kw_only=True)
class _Base:
    __pydantic_config__ = CLOSED
    name: str
    lane: str = COMPUTE
    after: tuple[str, ...] = ()
    after_previous: tuple[str, ...] = ()
    reads: tuple[Ref, ...] = ()
    writes: tuple[Ref, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Need(_Base):
    """Forward of `layer` (None: of the whole model) begins once this operation may start."""

    verb: Literal["need"] = "need"
    layer: str | None = None


@dataclass(frozen=True, kw_only=True)
class Ready(_Base):
    """Backward has produced the gradient of `tensor` (observed, driven by autograd).

    Without a tensor: those of all, which nothing waits for one by one. With `adds` the gradient is added to what
    `writes` holds already, that of earlier micro-batches; else it takes its place.
    """

    verb: Literal["ready"] = "ready"
    tensor: str | None
    adds: bool = False


@dataclass(frozen=True, kw_only=True)
class Send(_Base):
    """Send `reads` to rank `to`; matched with the receives of equal `channel`, `rail` and `tag` in order.

    `rail` is which of its links this rank sends on first, where the topology has several.
    """

    verb: Literal["send"] = "send"
    to: int
    channel: str = CHANNEL
    tag: int = 0
    rail: int = 0


@dataclass(frozen=True, kw_only=True)
class Recv(_Base):
    """Receive from rank `source` into `writes`; `rail` as that of the send."""

    verb: Literal["recv"] = "recv"
    source: int
    channel: str = CHANNEL
    tag: int = 0
    rail: int = 0


@dataclass(frozen=True, kw_only=True)
class RecvAny(_Base):
    """Receive from whichever of `sources` comes first (by arrival when executed, by time when simulated); on rail 0."""

    verb: Literal["recv_any"] = "recv_any"
    sources: tuple[int, ...]
    channel: str = CHANNEL
    tag: int = 0


@dataclass(frozen=True, kw_only=True)
class Reply(_Base):
    """Send `reads` to the rank that the named receive-from-any of this turn took its message from; on rail 0."""

    verb: Literal["reply"] = "reply"
    to: str
    channel: str = CHANNEL
    tag: int = 0


@dataclass(frozen=True, kw_only=True)
class Collective(_Base):
    """A collective of `ranks` (empty: all); stays one operation until lowered for a rank, lazily.

    `postcondition` is what holds of `writes` afterwards: `sum` (every rank has the sum over ranks), `shard` (each
    rank has the sum in its own piece), `gather` (every rank has every rank's piece), `copy` (the root's values).
    `shape` is how an algorithm that works level by level sees the ranks: sizes of the levels, nearest first (empty: all
    ranks alike). `root` is the source of a broadcast, and the server of an algorithm that has one.
    """

    verb: Literal["collective"] = "collective"
    kind: Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast"] = "all_reduce"
    algorithm: str = "native"
    ranks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    root: int = 0
    postcondition: Literal["sum", "shard", "gather", "copy"] = "sum"


@dataclass(frozen=True, kw_only=True)
class Local(_Base):
    """A kernel of `kernels/` on this rank's buffers.

    `requires`: what the gradient that it reads must be, `sum` or `shard` (its own piece) of the gradients of all ranks
    that compute any, `sparse_sum` where they were sparse; None: the gradients of some of them. `postcondition`: what it
    leaves in `writes`.
    """

    verb: Literal["local"] = "local"
    kernel: str
    arguments: dict[str, float] = dataclasses.field(default_factory=dict)
    requires: Literal["sum", "shard", "sparse_sum"] | None = None
    postcondition: Literal["sum", "sparse_sum"] | None = None


@dataclass(frozen=True, kw_only=True)
class SharedRead(_Base):
    """Copy a range of a shared buffer (`reads`) into a private one (`writes`)."""

    verb: Literal["shared_read"] = "shared_read"


@dataclass(frozen=True, kw_only=True)
class SharedAdd(_Base):
    """shared `writes` += scale * private `reads`; unlocked (Hogwild) unless `locked`."""

    verb: Literal["shared_add"] = "shared_add"
    scale: float = 1.0
    locked: bool = True


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """The body, `count` times in each turn; without a count until every source of its receives has stopped."""

    __pydantic_config__ = CLOSED
    verb: Literal["repeat"] = "repeat"
    name: str
    body: tuple[Operation, ...]
    count: int | None = None


Operation = Annotated[
    Need | Ready | Send | Recv | RecvAny | Reply | Collective | Local | SharedRead | SharedAdd | Repeat,
    Field(discriminator="verb"),
]


@dataclass(frozen=True)
class Role:
    """The loop body of some ranks; all workers of a synchronous scheme share one."""

    __pydantic_config__ = CLOSED
    name: str
    ranks: tuple[int, ...]
    body: tuple[Operation, ...]

    @cached_property
    def until_stopped(self) -> bool:
        """True where the role serves others and has no number of turns of its own."""
        return len(self.body) == 1 and isinstance(self.body[0], Repeat) and self.body[0].count is None

    @cached_property
    def flat(self) -> tuple[Any, ...]:
        """The operations of one turn with every repeat spelled out.

        Inside a repeat, `after_previous` means the previous pass of that body (in its first pass: the last pass
        of the previous turn). From outside, the name of a repeated operation means its last pass.
        """
        for op in self.body:
            inside = op.body if isinstance(op, Repeat) else ()
            endless = isinstance(op, Repeat) and not self.until_stopped and (op.count or 0) < 1
            if isinstance(op, Repeat) and (endless or not inside or any(isinstance(each, Repeat) for each in inside)):
                raise InputError(
                    f"plan: role {self.name!r}, repeat {op.name!r}: needs a count of at least 1 unless it is the whole "
                    "body of its role, and operations, none of which is another repeat"
                )
        if self.until_stopped:
            return tuple(getattr(self.body[0], "body", ()))
        repeated = sum((op.count or 1) * len(op.body) for op in self.body if isinstance(op, Repeat))
        others = sum(not isinstance(op, Repeat) for op in self.body)
        if repeated > MOST_REPEATED or repeated + others > MOST_OPERATIONS:
            raise InputError(
                f"plan: role {self.name!r} has {repeated} operations of repeats and {others} others a turn: at "
                f"most {MOST_REPEATED} of repeats are allowed, and {MOST_OPERATIONS} in all"
            )
        return tuple(_flatten(self.body))

    @cached_property
    def pass_of(self) -> dict[str, int]:
        """Needs and readies -> the pass of their turn that they belong to: 0, or with micro-batches 0, 1, ..

        A pass is a forward and a backward: after a gradient, the next need is that of another pass.
        """
        found: dict[str, int] = {}
        number = 0
        made: set[str | None] = set()  # ready in this pass
        for op in self.flat:
            if (isinstance(op, Need) and made) or (isinstance(op, Ready) and op.tensor in made):
                number += 1
                made.clear()
            if isinstance(op, Ready):
                made.add(op.tensor)
            if isinstance(op, Need | Ready):
                found[op.name] = number
        return found

    @cached_property
    def passes(self) -> int:
        """Forward and backward passes in a turn, each on samples of its own."""
        return max(self.pass_of.values(), default=-1) + 1


def _flatten(body: tuple[Any, ...]) -> Iterator[Any]:
    final = {  # name inside a repeat -> name of its last pass
        inner.name: f"{inner.name}#{(repeat.count or 1) - 1}"
        for repeat in body
        if isinstance(repeat, Repeat)
        for inner in repeat.body
    }
    for operation in body:
        if isinstance(operation, Repeat):
            for number in range(operation.count or 0):
                yield from _one_pass(operation, number, final)
        elif final:
            after = tuple(final.get(name, name) for name in operation.after)
            before = tuple(final.get(name, name) for name in operation.after_previous)
            yield dataclasses.replace(operation, after=after, after_previous=before)
        else:
            yield operation


def _one_pass(repeat: Any, number: int, final: dict[str, str]) -> Iterator[Any]:
    inside = {inner.name for inner in repeat.body}

    def of_pass(names: tuple[str, ...], which: int) -> tuple[str, ...]:
        return tuple(f"{name}#{which}" if name in inside else final.get(name, name) for name in names)

    for inner in repeat.body:
        changes: dict[str, Any] = {"name": f"{inner.name}#{number}", "after": of_pass(inner.after, number)}
        if number:
            changes["after"] += of_pass(inner.after_previous, number - 1)
            changes["after_previous"] = ()
        else:
            changes["after_previous"] = of_pass(inner.after_previous, repeat.count - 1)
        if isinstance(inner, Reply):
            changes["to"] = f"{inner.to}#{number}"
        yield dataclasses.replace(inner, **changes)


@dataclass(frozen=True)
class Plan:
    """What a scheme has planned. See the module's docstring for the meaning of order, lanes and waits."""

    __pydantic_config__ = CLOSED
    name: str
    ranks: int
    tensors: tuple[Tensor, ...]
    buffers: tuple[Buffer, ...]
    roles: tuple[Role, ...]
    provenance: dict[str, str] = dataclasses.field(default_factory=dict)
    version: int = VERSION

    @cached_property
    def role_of(self) -> dict[int, Role]:
        """Rank -> its role."""
        return {rank: role for role in self.roles for rank in role.ranks}

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        """Name -> buffer."""
        return {buffer.name: buffer for buffer in self.buffers}

    @cached_property
    def tensor(self) -> dict[str, Tensor]:
        """Name -> tensor."""
        return {tensor.name: tensor for tensor in self.tensors}

    @property
    def elements(self) -> int:
        """Of all tensors together."""
        return self.tensors[-1].stop if self.tensors else 0

    @cached_property
    def of_bytes(self) -> bool:
        """True where gradients, or what else is keyed by parameters, are bytes of a type that nobody knows."""
        return any(buffer.role in KEYED and buffer.dtype == BYTES for buffer in self.buffers)

    def holding(self, role: str) -> str | None:
        """The first buffer of that role that every rank has for itself; None where there is none."""
        return next((buffer.name for buffer in self.buffers if buffer.role == role and not buffer.shared), None)

    @cached_property
    def passes(self) -> int:
        """Forward and backward passes in an iteration: the micro-batches of a step."""
        return self.role_of[self.pace].passes

    @cached_property
    def symmetric(self) -> bool:
        """True where one role with collectives of all ranks is all there is: every rank does the same."""
        return len(self.roles) == 1 and all(
            isinstance(op, Need | Ready | Local) or (isinstance(op, Collective) and not op.ranks)
            for op in self.roles[0].flat
        )

    @cached_property
    def alike(self) -> tuple[str, ...]:
        """Names of the buffers that outlast a turn and hold the same on all ranks between two turns.

        That are parameters, momentum and scaler where all ranks do the same to whole ranges, and update from sums of
        all of them. Statistics of batch normalisation differ from a forward pass on until they are sent.
        """
        kept = tuple(buffer.name for buffer in self.buffers if buffer.role in ("parameter", "momentum", "scaler"))

        def differs(op: Any) -> bool:
            if any(ref.mine for ref in (*op.reads, *op.writes)):
                return True
            if isinstance(op, Collective):
                return op.kind not in ("all_reduce", "broadcast")
            return isinstance(op, Local) and op.requires is None and any(ref.buffer in kept for ref in op.writes)

        return () if not self.symmetric or any(map(differs, self.roles[0].flat)) else kept

    @cached_property
    def pace(self) -> int:
        """The rank whose turns are the iterations: the first that computes gradients, else that has turns at all."""
        working = [role for role in self.roles if any(isinstance(op, Ready) for op in role.flat)]
        turning = [role for role in self.roles if not role.until_stopped]
        return min(role.ranks[0] for role in (working or turning or self.roles))

    def bytes_of(self, refs: tuple[Ref, ...]) -> int:
        """Bytes of the whole ranges (a piece is counted as its range)."""
        return sum((ref.stop - ref.start) * DTYPE_BYTES[self.buffer[ref.buffer].dtype] for ref in refs)

    def communications(self, role: Role | None = None) -> list[Any]:
        """The operations of a role (default: the first) that move data between ranks, in launch order."""
        verbs = ("send", "recv", "recv_any", "reply", "collective", "shared_read", "shared_add")
        return [op for op in (role or self.roles[0]).flat if op.verb in verbs]

    def messages(self, role: Role | None = None) -> list[list[str]]:
        """Tensor names of each collective message of a role, in the order sent."""
        found = []
        for op in self.communications(role):
            if isinstance(op, Collective):
                names = [
                    tensor.name
                    for ref in op.writes
                    for tensor in self.tensors
                    if self._keyed(ref) and tensor.start < ref.stop and ref.start < tensor.stop
                ]
                if names:  # not, say, the statistics of batch normalisation
                    found.append(names)
        return found

    def _keyed(self, ref: Ref) -> bool:
        """True where elements of its buffer may be those of the tensors: a gradient in another type is scratch."""
        buffer = self.buffer[ref.buffer]
        return buffer.role in (*KEYED, "scratch") and buffer.elements == self.tensors[-1].stop

    def to_json(self) -> str:
        """Canonical JSON; equal plans give equal text."""
        return json.dumps(_ADAPTER.dump_python(self, mode="json", exclude_defaults=False), sort_keys=True)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON: what ranks compare before they start."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @staticmethod
    def from_json(text: str, where: str = "plan") -> Plan:
        """Parse and validate; raises InputError that names the place."""
        reading.parse_json(text, f"{where}: not a plan")
        try:
            plan = _ADAPTER.validate_json(text)
        except ValidationError as error:
            raise InputError(f"{where}: not a plan: {first_problem(error, Plan)}") from None
        if plan.version != VERSION:
            raise InputError(f"{where}: plan version {plan.version}; this gradsync reads version {VERSION}: plan again")
        return plan


_ADAPTER = TypeAdapter(Plan)

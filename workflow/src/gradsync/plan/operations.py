"""The vocabulary: the operations of which the loop of a plan is made, each a `verb` with the ranges that it touches."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from gradsync.plan.buffers import CLOSED, WORLD, Ref

COMPUTE = "compute"  # the lane of forward, backward and update; every other lane communicates
CHANNEL = "network"  # of transfers that name no other


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

    Without a tensor it has produced all gradients, which nothing waits for one by one. With `adds` the gradient is
    added to what `writes` holds already, that of earlier micro-batches; else it takes its place.
    """

    verb: Literal["ready"] = "ready"
    tensor: str | None
    adds: bool = False


@dataclass(frozen=True, kw_only=True)
class Send(_Base):
    """Send `reads` to rank `to`; matched with the receives of equal `channel`, `rail` and `tag` in order.

    `rail` is the link on which this rank sends first, if the topology gives it several.
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


Kind = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"]


@dataclass(frozen=True, kw_only=True)
class Collective(_Base):
    """A collective of the groups of an axis (`over`), or of `ranks` alone; one operation until lowered for a rank.

    `postcondition` is what holds of `writes` afterwards: `sum` (every rank has the sum over its group), `shard` (each
    rank has the sum in its own piece), `gather` (every rank has every rank's piece), `copy` (the root's values),
    `root_sum` (the root has the sum, and the others nothing that may be read), `exchange` (in place of its piece r each
    rank has, of rank r, the piece of its own number; all pieces are equally long).
    `shape` is how an algorithm that works level by level sees the group: sizes of the levels, nearest first (empty: all
    ranks alike). `root` is the source of a broadcast, where a reduce sums, and the server of an algorithm that has
    one: a rank, or if the collective is over an axis other than `world`, a place on it.
    """

    verb: Literal["collective"] = "collective"
    kind: Kind = "all_reduce"
    algorithm: str = "native"
    over: str = WORLD
    ranks: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    root: int = 0
    postcondition: Literal["sum", "shard", "gather", "copy", "root_sum", "exchange"] = "sum"


@dataclass(frozen=True, kw_only=True)
class Local(_Base):
    """A kernel of `kernels/` on this rank's buffers.

    `requires`: what the gradient that it reads must be: `sum` or `shard` (the rank's own piece) of the gradients of all
    ranks that compute any, `sparse_sum` if some of them were sparse; None: the gradients of some of them.
    `postcondition`: what it leaves in `writes`.
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

"""A scheme is a composition of parts, such as schedule, collective, update. This module names and refuses them.

A part that is left open is the one that the others are made for, or what the scheme's name says.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from gradsync import collectives, compressors, schedules, sparse, topologies, updates
from gradsync.collectives import NATIVE
from gradsync.configuration import compositions
from gradsync.configuration.phases import Phase, changes_of, composed
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.plan import Axis
from gradsync.plan.workload import Layer, Workload
from gradsync.sparse import Compression, Way
from gradsync.topologies import Topology
from gradsync.transforms.low_rank import LowRank, of_workload

LAYER_BY_LAYER = "wfbp"  # the schedule of a collective's own scheme: each layer is split by itself, as with BML
PACKED = "single"  # the schedule of a method that exchanges whole parameters
BY_LEVEL = "native_by_level"  # the collective that is several of the backend's own
MERGED = "optimal"  # the schedule of its own scheme: each of its messages has three start-ups
ITS_LEVELS = "hitopk"  # whose axes it has: it is the same without selection
NAIVE_SPARSE = "allgather_sparse"  # the collective of a compressor without one
DEFAULT_COMPRESSOR, DEFAULT_DENSITY = "exact_topk", 0.01  # of a sparse collective
TRIAL = tuple(Layer(name=name, bytes=4, backward_seconds=0.0) for name in ("second", "first"))


class Scheme(BaseModel):
    """One point in the product of the parts, with the paper's name for it."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: str
    schedule: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    collective: str = ""  # empty: the one of the scheme's name, else the backend's own
    topology: str = ""  # bcube, or with its numbers bcube:3,2; empty: the one that the collective is made for
    update: str = ""  # empty: the method of the scheme's name, else the one that the schedule is made for
    update_options: dict[str, Any] = Field(default_factory=dict)
    optimizer: str = ""  # empty: whichever the launch has
    pto: bool = False  # whether the norms of tensors that its optimizer needs are dealt to ranks
    wire: Literal["", "float32", "float16", "bfloat16"] = ""  # the type that gradients travel in; empty: their own
    compressor: str = ""  # of sparse messages, or of factors; empty: all of each message travels
    compressor_options: dict[str, Any] = Field(default_factory=dict)
    density: float | None = None  # the share of the elements that travels; None: DEFAULT_DENSITY, if some do
    error_feedback: bool | None = None  # whether what isn't sent is added to the next gradient; None: as is usual
    phases: tuple[Phase, ...] = ()  # schemes that follow one another in a training; empty: it is one itself
    residual: Literal["", "flush", "carry"] = ""  # what becomes of a phase's residual behind it; empty: carry
    label: str = ""
    paper: str = ""
    place: str = ""
    _parts: tuple[Scheme, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any) -> None:
        """Defaults that depend on the name."""
        if self.phases:
            object.__setattr__(self, "label", self.label or self.name)
            return
        methods = updates.methods()
        described = self.name in (*collectives.names(), *sparse.names(), BY_LEVEL)
        of_collective = MERGED if self.name == BY_LEVEL else LAYER_BY_LAYER
        selects = self.name in compressors.names() and not self.collective
        compressor = self.compressor or (self.name if selects else "")
        factors = compressor in compressors.names() and compressors.factors(compressor)
        of_compressor = NAIVE_SPARSE if compressor and not factors else NATIVE
        collective = self.collective or (self.name if described else of_compressor)
        if factors and self.error_feedback is None:
            object.__setattr__(self, "error_feedback", bool(compressors.get(compressor).FEEDBACK))
        if collective in sparse.names() and not factors:
            compressor = compressor or DEFAULT_COMPRESSOR
            codes = compressor in compressors.names() and compressors.codes(compressor)
            if not codes and self.density is None:
                object.__setattr__(self, "density", DEFAULT_DENSITY)
            if self.error_feedback is None:
                object.__setattr__(self, "error_feedback", not codes or compressors.get(compressor).FEEDBACK)
        defaults = {
            "schedule": of_collective if described or selects else self.name,
            "collective": collective,
            "compressor": compressor,
            "label": self.name,
            "update": "ssgd",
        }
        if (self.update or self.name) in methods:
            defaults |= {"schedule": PACKED, "update": self.name}
        schedule = self.schedule or defaults["schedule"]
        if schedule in schedules.names() and defaults["update"] not in methods:  # else it is refused by name
            defaults["update"] = schedules.update(schedule)
        for key, default in defaults.items():
            object.__setattr__(self, key, getattr(self, key) or default)

    def refuse_nonsense(self, where: str) -> None:
        """Raises InputError if a part does not exist, has no such option, or two parts don't go together."""
        try:
            trial = Workload(name="trial", forward_seconds=0.0, layers=TRIAL)
            schedules.messages(self.schedule, trial, Linear(0.0, 0.0), self.options)
            compositions.refuse_compression(self)
            compositions.refuse_levels(self)
            if self.residual:
                raise InputError("key residual: only with phases: leave it out")
            topology = self.topology or self._made_for
            if ":" in topology:
                topologies.parse(topology)
            collectives.refuse_links(self.algorithm, topology)
            updates.refuse_options(self.update, self.update_options)
            self.refuse_parts_of_sums()
            compositions.refuse_dealing(self)
            if self.optimizer:
                self.refuse_optimizer(self.optimizer)
            if self.algorithm != NATIVE and updates.halved(self.update):
                collectives.refuse(self.algorithm, (2,), collectives.REDUCE_SCATTER)
            if self.algorithm not in (NATIVE, *collectives.names()):
                raise InputError(
                    f"collective {self.algorithm!r} sums no gradients: choose one of "
                    f"{', '.join([NATIVE, *collectives.names()])}"
                )
        except InputError as error:
            raise InputError(f"{where}, scheme {self.name!r}: {error}") from None

    @property
    def parts(self) -> tuple[Scheme, ...]:
        """The schemes of its phases, in order; itself if it has none."""
        return self._parts or (self,)

    def with_parts(self, known: dict[str, Scheme], where: str) -> Scheme:
        """The scheme with those of its phases, if it has any; raises InputError if they can't follow one another."""
        if not self.phases:
            return self
        try:
            object.__setattr__(self, "_parts", composed(self, known))
        except InputError as error:
            raise InputError(f"{where}, scheme {self.name!r}: {error}") from None
        object.__setattr__(self, "update", self.parts[0].update)
        return self

    def refuse_parts_of_sums(self) -> None:
        """Raises InputError for a part that belongs to sums of gradients, if the update has none."""
        compositions.refuse_parts_of_sums(self, PACKED)

    @property
    def averaged(self) -> bool:
        """Whether every iteration applies the mean gradient of all ranks, as synchronous SGD does."""
        return updates.averaged(self.update)

    def workers(self, ranks: int) -> int:
        """How many of so many ranks compute gradients: all but the master, if the method has one."""
        return ranks - updates.masters(self.update)

    @property
    def open_options(self) -> list[str]:
        """The options of its update that it leaves open."""
        return [key for key in updates.options(self.update) if key not in self.update_options]

    def ranks(self, workers: int) -> int:
        """How many ranks so many workers are in: one more, if the method has a master."""
        return workers + updates.masters(self.update)

    def refuse_ranks(self, ranks: int, ranks_a_node: int | None = None) -> None:
        """Raises InputError for a number of ranks that the scheme's topology can't hold or its collective not serve."""
        try:
            if ranks < 1:
                raise InputError(f"{ranks} ranks: at least 1")
            if self.workers(ranks) < 1:
                raise InputError(f"{ranks} rank(s), of which rank 0 is the master: at least 2")
            shape = self.shape(ranks, ranks_a_node)
            self.axes(ranks, ranks_a_node)
            if self.algorithm != NATIVE and updates.halved(self.update):
                collectives.refuse(self.algorithm, shape, collectives.REDUCE_SCATTER)
        except InputError as error:
            raise InputError(f"scheme {self.name!r}: {error}") from None

    def refuse_scaled(self, scaled: bool) -> None:
        """Raises InputError if the loss is `scaled`, and no iteration applies the mean gradient."""
        if scaled and not self.averaged:
            raise InputError(
                f"scheme {self.name!r}: update {self.update!r} applies no mean gradient of all ranks, which clipping "
                "and a loss scale (float16) belong to: leave them out"
            )
        keeps = self.compressor and not (self.compressor in compressors.selecting() and not self.error_feedback)
        if scaled and keeps:
            raise InputError(
                f"scheme {self.name!r}: compressor {self.compressor!r} keeps or encodes gradients, which float16 with "
                "its loss scale makes infinite now and then: choose another precision"
            )

    def refuse_optimizer(self, name: str) -> None:
        """Raises InputError for an optimizer other than the scheme's own, or that its parts can't have."""
        if self.optimizer not in ("", name):
            raise InputError(
                f"scheme {self.name!r} is one of optimizer {self.optimizer!r}, and gradients are applied by {name!r}: "
                f"choose optimizer {self.optimizer}, or a scheme without one of its own"
            )
        compositions.refuse_optimizer(self, name)

    @property
    def on_gpus(self) -> bool:
        """Whether GPUs execute its collective: one of the backend's own, or several of them."""
        return self.algorithm == NATIVE

    def refuse_device(self, device: str) -> None:
        """Raises InputError for a device that does not execute the scheme's collective."""
        if device != "cpu" and not self.on_gpus:
            raise InputError(
                f"scheme {self.name!r}: collective {self.collective!r} is made of transfers between two ranks, which "
                f"only device cpu executes, not {device}: choose collective {NATIVE} or {BY_LEVEL}"
            )

    def network(self, ranks: int, ranks_a_node: int | None = None) -> Topology:
        """The topology between so many ranks; `ranks_a_node` are on a node together, if that is known.

        Raises InputError if it can't hold them.
        """
        return topologies.parse(self.topology or self._made_for, ranks, ranks_a_node)

    @property
    def _made_for(self) -> str:
        """The topology that its collective is made for."""
        if self.by_level:
            return sparse.topology_of(ITS_LEVELS)
        room = sparse if self.sparse else collectives
        return room.topology_of(self.collective)

    def shape(self, ranks: int, ranks_a_node: int | None = None) -> tuple[int, ...]:
        """The levels that so many ranks fill; raises InputError if topology or collective refuse them."""
        return collectives.shape_on(self.algorithm, self.network(ranks, ranks_a_node), ranks)

    @property
    def algorithm(self) -> str:
        """How a message that is not sparse travels: by the backend's own collective if others are."""
        return NATIVE if self.sparse or self.by_level else self.collective

    @property
    def by_level(self) -> bool:
        """Whether its messages are summed inside nodes and between them, by the backend's own collectives."""
        return self.collective == BY_LEVEL

    @property
    def sparse(self) -> bool:
        """Whether its messages are gathered, since a compressor makes something of them that is not summed."""
        return bool(self.compressor) and not compressors.factors(self.compressor)

    def low_rank(self, workload: Workload) -> LowRank | None:
        """How each tensor of a workload is factored; None if none is. Raises InputError if shapes are not known."""
        if not self.compressor or self.sparse:
            return None
        options = compressors.options(self.compressor) | self.compressor_options
        return of_workload(self.compressor, workload, feedback=self.error_feedback is not False, **options)

    def compression(self, ranks: int, ranks_a_node: int | None = None) -> Compression | None:
        """What of its messages travels between so many ranks, and on which way; None if they are not sparse."""
        if not self.sparse:
            return None
        way = sparse.way(self.collective, self.network(ranks, ranks_a_node), ranks)
        options = compressors.options(self.compressor) | self.compressor_options
        density = 1.0 if self.density is None else self.density  # a code has none
        return Compression(way, self.compressor, density, self.error_feedback is not False, (*options.items(),))

    def axes(self, ranks: int, ranks_a_node: int | None = None) -> tuple[Axis, ...]:
        """The axes of its plan between so many ranks, besides that of all of them."""
        way = self.levels(ranks, ranks_a_node) or getattr(self.compression(ranks, ranks_a_node), "way", None)
        return () if way is None else way.axes

    def levels(self, ranks: int, ranks_a_node: int | None = None) -> Way | None:
        """The axes over which its messages are summed one after the other; None if at once, or if they are sparse."""
        return sparse.way(ITS_LEVELS, self.network(ranks, ranks_a_node), ranks, BY_LEVEL) if self.by_level else None

    @property
    def changes_training(self) -> str:
        """What it changes in the parameters that come out; empty if only the order of sums."""
        if self.phases:
            return changes_of(self.parts)
        if updates.steps(self.update):
            period = self.update_options.get("period", updates.options(self.update)["period"])
            return f"every {period} iterations parameters are synchronised, not gradients ({self.update})"
        if self.compressor and compressors.factors(self.compressor):
            options = compressors.options(self.compressor) | self.compressor_options
            return f"matrices of gradients are sent as factors of rank {options['rank']} ({self.compressor})"
        if self.compressor and compressors.codes(self.compressor):
            return f"gradients are sent in a few bits of each element ({self.compressor})"
        if self.compressor:
            return f"{self.density:.3g} of the gradients' elements are sent ({self.compressor})"
        return f"gradients are rounded to {self.wire}" if self.wire not in ("", "float32") else ""

    @property
    def in_memory(self) -> bool:
        """Whether its ranks share memory, so that they are on one machine."""
        return updates.in_memory(self.update) or any(collectives.in_memory(part.algorithm) for part in self.parts)

    @property
    def lanes(self) -> int:
        """On how many lanes its messages travel."""
        return schedules.lanes(self.schedule, self.options)

    @property
    def sums_one_at_a_time(self) -> bool:
        """Whether its messages are all-reduces of the backend's own, one after the other, and nothing else."""
        alone = self.collective == NATIVE and self.lanes == 1 and self.update == "ssgd"
        return alone and not (self.pto or self.compressor)

    def measured_as(self, ranks: int, ranks_a_node: int | None = None) -> str:
        """What schemes whose messages cost the same have in common: `bml-3x3`; empty for the backend's own."""
        if self.algorithm == NATIVE:
            return ""
        return f"{self.collective}-{'x'.join(map(str, self.shape(ranks, ranks_a_node)))}"

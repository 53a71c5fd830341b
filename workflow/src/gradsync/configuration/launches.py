"""The launches of a configuration, one entry each: trained, or emulated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

from gradsync import limits, topologies, updates
from gradsync.configuration import elastic, on_testbed, recipes, training
from gradsync.configuration.options import Option, options_of, taken
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.training import DataCache, Precision, Statistics
from gradsync.errors import InputError
from gradsync.files import reading


def _path(text: str) -> str:
    """What the workflow may hand to a command as a file or folder."""
    try:
        reading.refuse_word(text, "a path")
    except InputError as error:
        raise ValueError(str(error)) from None
    return text


def _image(text: str) -> str:
    """An image's path: Snakemake puts it into a shell as it is."""
    if not re.fullmatch(r"[A-Za-z0-9._/@%+=,~-]+", text):
        raise ValueError(f"{reading.shown(text)}: of an image's path, letters, digits and ._/@%+=,~- are taken")
    return _path(text)


FilePath = Annotated[str, AfterValidator(_path)]
ImagePath = Annotated[str, AfterValidator(_image)]
Ranks = Annotated[int, Field(le=limits.MOST_RANKS)]
Count = Annotated[int, Field(le=limits.MOST_COUNT)]
Length = Annotated[int, Field(le=limits.MOST_LENGTH)]
MessageBytes = Annotated[int, Field(ge=limits.LEAST_MESSAGE, le=limits.MOST_MESSAGE, description="bytes")]
Seed = Annotated[int, Field(ge=0, le=limits.MOST_SEED)]


EMULATED_OPTIMIZER = "sgd"  # of emulated launches, which choose none
TRAINING = {option.name: option for option in options_of(training.Training)}
ELASTIC = {option.name: option for option in options_of(elastic.Elastic)}
TESTBED = {option.name: option for option in options_of(on_testbed.OnTestbed)}


class Closed(BaseModel):
    """Has these keys and no others, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def _as_option(name: str, of: Mapping[str, Option] = TRAINING, **limits: Any) -> Any:
    """A key that a command has as an option, with its default, limits and meaning; `limits`: further ones."""
    option = of[name]
    about = option.about
    if not option.several:
        limits = {"ge": about.least, "le": about.most} | limits
    default = option.default if about.configured is None else about.configured
    return Field(
        default=list(default) if option.several else default,
        description=f"{about.meaning}; null: {about.unset}" if about.unset else about.meaning,
        **{key: limit for key, limit in limits.items() if limit is not None},
    )


class RecipeStage(Closed):
    """A part of a training; what is null is as in the launch."""

    epochs: Count = Field(ge=1, description="passes over the data")
    size: Length | None = Field(default=None, ge=1, description="side of images in pixels")
    batch: Count | None = Field(default=None, ge=1, description="samples per rank and micro-batch")
    lr: float | None = Field(default=None, gt=0, description="learning rate")


class Training(Closed):
    """One launch that trains a model under all its schemes and peers in turn."""

    model: str
    name: str = Field(
        default="",
        pattern=r"^[a-z0-9_]*$",
        max_length=60,
        description="tells launches of the same model and ranks apart",
    )
    paper: str = _as_option("paper")
    ranks: Ranks = Field(ge=2)
    ranks_a_node: Ranks | None = Field(
        default=None, ge=1, description="that topologies of nodes take for one node (dense_gpu); null: the machines'"
    )
    data: str = _as_option("data")
    data_folder: FilePath | None = _as_option("data_folder")
    data_cache: DataCache | None = _as_option("data_cache")
    data_cache_memory: int | None = _as_option("data_cache_memory")
    data_cache_folder: FilePath | None = _as_option("data_cache_folder")
    data_cache_disk: int | None = _as_option("data_cache_disk")
    size: int | None = _as_option("size")
    batch: int = _as_option("batch")
    accumulate: int = _as_option("accumulate")
    clip_norm: float | None = _as_option("clip_norm", gt=0, allow_inf_nan=False)
    epochs: int = _as_option("epochs")
    iterations: int = _as_option("iterations")
    recipe: list[RecipeStage] = Field(default=[], description="stages of the training, in place of epochs; []: one")
    target_accuracy: float | None = _as_option("target_accuracy", gt=0, le=1)
    block: int = _as_option("block")
    optimizer: str = _as_option("optimizer")
    lr: float = _as_option("lr", gt=0)
    momentum: float = _as_option("momentum", ge=0, lt=1)
    weight_decay: float = _as_option("weight_decay", ge=0)
    beta1: float = _as_option("beta1", ge=0, lt=1)
    beta2: float = _as_option("beta2", ge=0, lt=1)
    eps: float = _as_option("eps", ge=training.LEAST_EPS)
    trust: float = _as_option("trust", ge=0)
    lr_schedule: str = _as_option("lr_schedule")
    warmup_iterations: int = _as_option("warmup_iterations")
    label_smoothing: float | None = _as_option("label_smoothing", ge=0, lt=1)
    precision: Precision = _as_option("precision")
    statistics: Statistics = _as_option("statistics")
    seeds: list[Seed] = _as_option("seeds", min_length=1)
    schemes: list[str] | Literal["native"] | None = Field(
        default=None, description="null: all that can run on so many ranks; native: by the backend's own collective"
    )
    peers: list[str] | None = Field(default=[], description="of config/peers.yaml; null: all")
    references: bool = _as_option("references")
    conformance: int = _as_option("conformance")
    profile_iterations: Count = Field(
        default=10, ge=0, description="in which the layers are timed, in another run; 0: not measured, so not predicted"
    )
    checkpoint_seconds: float = _as_option("checkpoint_seconds")

    @property
    def scaled(self) -> bool:
        """Whether the loss has a scale, against gradients that float16 does not hold."""
        return self.precision == "float16"

    @field_validator("profile_iterations")
    @classmethod
    def _timed(cls, count: int) -> int:
        if count == 1:
            raise ValueError("at least 2, since the first is not timed; or 0, for no profile")
        return count

    @property
    def job(self) -> str:
        """Name of the launch in paths."""
        return f"{self.model}-{self.ranks}" + (f"-{self.name}" if self.name else "")

    def options(self, device: str) -> training.Training:
        """What `gradsync train` is told of the launch."""
        stages = tuple(recipes.Stage(**stage.model_dump()).text() for stage in self.recipe)
        return taken(training.Training, self, device=device, recipe=stages)


class ElasticTraining(Closed):
    """Launches of methods that have masters, workers or a centre, one a method: the same model, data and seeds."""

    model: str
    workers: Ranks = Field(ge=1, description="that compute gradients; a master is one rank more")
    name: str = Field(
        default="",
        pattern=r"^([a-z0-9_][a-z0-9_.+-]*)?$",
        max_length=100,
        description="tells launches of the same model and workers apart",
    )
    paper: str = _as_option("paper", ELASTIC)
    methods: list[str] = Field(min_length=1, description="schemes of config/schemes.yaml, of any update")
    collective: str | None = Field(
        default=None,
        description="of methods that reduce to rank 0 and broadcast from there: binary_tree is the paper's tree; null: "
        "the backend's own",
    )
    data: str = _as_option("data", ELASTIC)
    data_folder: FilePath | None = _as_option("data_folder", ELASTIC)
    size: int | None = _as_option("size", ELASTIC)
    batch: int = _as_option("batch", ELASTIC)
    epochs: int = _as_option("epochs", ELASTIC)
    iterations: int = _as_option("iterations", ELASTIC)
    lr: float = _as_option("lr", gt=0)
    momentum: float = _as_option("momentum", ge=0, lt=1)
    rho: float = Field(
        default=0.5, gt=0, allow_inf_nan=False, description="of elastic averaging: a pull goes lr x rho of the way"
    )
    segment: int = _as_option("segment", ELASTIC)
    seeds: list[Seed] = _as_option("seeds", ELASTIC, min_length=1)
    target_errors: list[float] = _as_option("target_errors", ELASTIC)
    stop_at_target: bool = _as_option("stop_at_target", ELASTIC)
    again: int = _as_option("again", ELASTIC)
    keep: bool = _as_option("keep", ELASTIC)
    testbed: str | None = Field(
        default=None, description="ranks run on hosts of their own, wired as this topology; null: on the machine"
    )
    rate: float = _as_option("rate", TESTBED, gt=0, allow_inf_nan=False)
    flow_rate: float | None = _as_option("flow_rate", TESTBED, gt=0, allow_inf_nan=False)
    compute_seconds: float | None = _as_option("compute_seconds", ELASTIC, gt=0, le=elastic.MOST_WAIT)
    conformance: int = _as_option("conformance", ELASTIC)
    checkpoint_seconds: float = _as_option("checkpoint_seconds", ELASTIC)

    @property
    def job(self) -> str:
        """Name of the launch in paths."""
        return f"{self.model}-{self.workers}" + (f"-{self.name}" if self.name else "")

    def options(self, device: str) -> elastic.Elastic:
        """What `gradsync elastic` is told of the launch."""
        return taken(elastic.Elastic, self, device=device)

    @property
    def hosts(self) -> on_testbed.OnTestbed:
        """What `gradsync elastic` is told of the hosts that its ranks run on."""
        return taken(on_testbed.OnTestbed, self)

    def parts(self, scheme: Scheme) -> list[str]:
        """What `gradsync plan` is told of the parts of a scheme, if it has such."""
        return [f"--collective={self.collective}"] if self.collective and updates.rooted(scheme.update) else []

    def steps(self, update_options: Iterable[str]) -> list[str]:
        """What `gradsync plan` is told of the steps; `update_options`: those of the method that no scheme has set."""
        own = [f"--update-option={key}={getattr(self, key)}" for key in update_options if key in ("rho", "momentum")]
        return [f"--lr={self.lr}", f"--momentum={self.momentum}", *own]


class Emulation(Closed):
    """One launch on an emulated testbed: computation replayed, messages between real processes over limited links."""

    model: str
    ranks: Ranks = Field(ge=2, description="hosts")
    name: str = Field(
        default="", pattern=r"^[a-z0-9_]*$", max_length=60, description="tells launches of a model and ranks apart"
    )
    paper: str = Field(default="mgwfbp", description="whose testbed it stands for, and whose tables show it")
    batch: Count | None = Field(default=None, ge=1, description="samples a host, where the paper has several sizes")
    topology: str = "switch"
    flow_share: float | None = Field(
        default=None, gt=0, le=1, description="most of a link that a connection gets; null: as in the paper"
    )
    dilation: float = Field(gt=0, allow_inf_nan=False, description="how many times slower than the paper's testbed")
    schemes: list[str] = Field(min_length=1)
    peers: list[str] = Field(default=[], description="of config/peers.yaml")
    iterations: Count = Field(default=12, ge=2)
    block: Count = Field(
        default=2,
        ge=2,
        description="iterations before the next contender has its turn; one repeat, the first not timed",
    )
    conformance: Count = Field(
        default=1, ge=0, description="steps that plans are held against the oracle, without waits"
    )

    @property
    def ranks_a_node(self) -> int | None:
        """How many ranks are on a host together; None if the topology says nothing of hosts."""
        return topologies.parse(self.topology, self.ranks).ranks_a_node

    @property
    def job(self) -> str:
        """Name of the launch in paths."""
        return f"{self.model}-{self.ranks}" + (f"-{self.name}" if self.name else "")

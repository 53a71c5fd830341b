"""The configuration of a workflow run: typed and closed, so that a wrong key is named when it is read."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Annotated, ClassVar, Literal

from pydantic import Field, SerializeAsAny, ValidationError, field_validator

from gradsync import compressors, learning_rates, limits, names, optimizers, topologies
from gradsync.configuration import elastic_launches, peers, schemes
from gradsync.configuration.expansion import expanded
from gradsync.configuration.launches import (
    EMULATED_OPTIMIZER,
    Closed,
    Count,
    ElasticTraining,
    Emulation,
    FilePath,
    ImagePath,
    Length,
    MessageBytes,
    Ranks,
    Training,
)
from gradsync.configuration.on_testbed import NO_SHARED_MEMORY
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.topologies.switch import Switch

VERSION = 1


class Profile(Closed):
    """A measurement of the layers of a model on this machine, one rank."""

    batch: Count = Field(ge=1)
    size: Length | None = Field(default=None, ge=1)
    iterations: Count = Field(default=5, ge=2)


class NetworkProfile(Closed):
    """All-reduce times of this machine, for Fig. 5(b)."""

    ranks: list[Annotated[int, Field(ge=2, le=limits.MOST_RANKS)]] = Field(default=[2, 4, 8], min_length=1)
    smallest: MessageBytes = Field(default=1024, description="bytes")
    largest: MessageBytes = Field(default=16 * 1024 * 1024, description="bytes")


class ContentionProfile(Closed):
    """Times of all-reduces under contention on this machine, for Fig. 4 and 5 of the ASC-WFBP paper."""

    ranks: Ranks = Field(default=2, ge=2)
    lanes: int = Field(
        default=2, ge=limits.LEAST_LANES, le=limits.MOST_MEASURED_LANES, description="most messages at once"
    )
    smallest: MessageBytes = Field(default=8192, description="bytes; the paper's figures start at 8 KiB")
    largest: MessageBytes = Field(default=4 * 1024 * 1024, description="bytes; the paper's end at 4 MiB")


class SelectionProfile(Closed):
    """Times of the compressors' selections, for Fig. 6 of the public-cloud paper; k is a thousandth of the elements."""

    elements: list[Annotated[int, Field(ge=1000, le=limits.MOST_COUNT)]] = Field(
        default=[256_000, 512_000, 1_000_000, 2_000_000], min_length=1, description="of vectors of 32-bit numbers"
    )
    rounds: int = Field(default=8, ge=1, le=limits.MOST_SELECTIONS, description="fewer than 6 have no interval")
    iterations: int = Field(default=1, ge=1, le=limits.MOST_SELECTIONS, description="selections in a round")


class LoadingProfile(Closed):
    """What a training waits for photographs, for Fig. 9 of the public-cloud paper; one rank trains."""

    model: str = "resnet18"
    size: Length = Field(default=96, ge=1, description="pixels of a side")
    batch: Count = Field(default=4, ge=1)
    data_folder: FilePath | None = Field(
        default=None, description="photographs in train and val, a folder per class; null: made-up ones"
    )
    photographs: Count = Field(default=16, ge=1, description="how many are made up")
    blocks: Count = Field(default=6, ge=1, description="of each loader; fewer than 6 have no interval")
    iterations: Count = Field(default=1, ge=1, description="of a block that are timed; one more is not")

    @property
    def job(self) -> str:
        """Name of its runs in paths."""
        return f"{self.model}_{self.size}"


class RatiosProfile(Closed):
    """What LARS's and LAMB's ratios take, dealt to ranks (PTO) or not, for Section 5.4 of the public-cloud paper."""

    ranks: list[Annotated[int, Field(ge=2, le=limits.MOST_RANKS)]] = Field(default=[8], min_length=1)
    rounds: Count = Field(default=8, ge=1, description="fewer than 6 have no interval")
    iterations: Count = Field(default=3, ge=1, description="of a round that are timed; one more is not")


class ClusterProfile(Closed):
    """The cluster at hand, measured and written to config/clusters/NAME.yaml."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)
    ranks: Ranks = Field(default=2, ge=1, description="that measure, over all nodes they need")
    models: list[str] = Field(default=["all"], min_length=1, description="NAME[:size=PIXELS][:batch=SAMPLES]; all")
    iterations: Count = Field(default=10, ge=2)


class Estimate(Closed):
    """What a launch is assumed to run at before anything is measured: for estimated GPU hours only."""

    teraflops: float = Field(
        default=20.0, gt=0, description="sustained by a rank in training, 1e12 operations a second"
    )
    gigabits: float = Field(default=50.0, gt=0, description="a rank's share of its node's link, 1e9 bits a second")
    startup_seconds: float = Field(default=120.0, ge=0, description="of a job, before its first iteration")


class PaperSettings(Closed):
    """What a configuration sets of a paper; a paper with more of them has its `Own` in `papers/PAPER/settings.py`."""

    published: FilePath = Field(description="published numbers and claims")
    testbed: FilePath = Field(description="the testbed that the paper simulates")
    needs_profiles: ClassVar[Mapping[str, str]] = {}  # by model: what is made from the profile


class MLflow(Closed):
    """Where runs are imported."""

    tracking_uri: str | None = Field(default=None, description="null: results/mlflow.db")
    experiment: str = "gradsync"


class Settings(Closed):
    """All of it."""

    version: int
    name: str = Field(pattern=r"^[a-z0-9_][a-z0-9_-]*$", max_length=100)
    schemes: FilePath = "config/schemes.yaml"
    peers: FilePath = "config/peers.yaml"
    papers: dict[str, SerializeAsAny[PaperSettings]] = Field(
        default={}, description="config/papers/PAPER: published numbers, claims, testbed; a paper's own settings"
    )
    external_data: FilePath | None = Field(default=None, description="folder with third-party logs")
    device: Literal["cpu", "cuda"] = "cpu"
    container: ImagePath | None = Field(
        default=None, description="image of all jobs; null: containers/DEVICE.sif, built"
    )
    training: list[Training] = Field(default=[])
    elastic: list[ElasticTraining] = Field(default=[], description="launches of methods with masters or a centre")
    emulated: list[Emulation] = Field(default=[], description="launches on an emulated testbed (Linux)")
    cluster_profile: ClusterProfile | None = None
    estimate: Estimate = Estimate()
    profiles: dict[str, Profile] = Field(default={"resnet50": Profile(batch=4), "googlenet": Profile(batch=4)})
    network: NetworkProfile = NetworkProfile()
    contention: ContentionProfile = ContentionProfile()
    selection: SelectionProfile = SelectionProfile()
    loading: LoadingProfile = LoadingProfile()
    ratios: RatiosProfile | None = None
    mlflow: MLflow = MLflow()

    @property
    def gpus(self) -> int:
        """The most GPUs that it takes at a time; 0 on processors. Profiles of selections and of loading take one."""
        launches = [*(launch.ranks for launch in self.training), *(launch.workers + 1 for launch in self.elastic)]
        profiles = [*self.network.ranks] if "mgwfbp" in self.papers else []
        profiles += [self.contention.ranks] if "ascwfbp" in self.papers else []
        profiles += self.ratios.ranks if self.ratios and "cloud_topk" in self.papers else []
        profiles += [self.cluster_profile.ranks] if self.cluster_profile else []
        return max([1, *launches, *profiles]) if self.device == "cuda" else 0

    def of_paper(self, name: str) -> PaperSettings:
        """The settings of a paper; raises InputError if the configuration does not show it."""
        if name not in self.papers:
            raise InputError(f"configuration {self.name}: paper {name} is not under `papers`: add `{name}: {{}}` there")
        return self.papers[name]

    def of(self, paper: str) -> list[Training]:
        """The launches that a paper shows."""
        return [launch for launch in self.training if launch.paper == paper]

    def elastic_of(self, paper: str) -> list[ElasticTraining]:
        """The launches of masters, workers and centres that a paper shows."""
        return [launch for launch in self.elastic if launch.paper == paper]

    def emulated_of(self, paper: str) -> list[Emulation]:
        """The emulated launches that a paper shows."""
        return [launch for launch in self.emulated if launch.paper == paper]

    @field_validator("elastic", mode="before")
    @classmethod
    def _one_launch_a_value(cls, entries: object) -> object:
        """`batch: [16, 64]` is two launches whose names tell them apart, `lr` beside it twice as many."""
        if not isinstance(entries, list):
            return entries
        return [each for entry in entries for each in (expanded(entry) if isinstance(entry, dict) else [entry])]

    @field_validator("training", "emulated", mode="before")
    @classmethod
    def _one_launch_each(cls, entries: object) -> object:
        """`ranks: [2, 4]` is two launches that are alike otherwise."""
        if not isinstance(entries, list):
            return entries
        return [
            {**entry, "ranks": ranks} if isinstance(entry, dict) and "ranks" in entry else entry
            for entry in entries
            for ranks in (_listed(entry) if isinstance(entry, dict) else [None])
        ]


def _listed(entry: dict[str, object]) -> list[object]:
    ranks = entry.get("ranks")
    return ranks if isinstance(ranks, list) and ranks else [ranks]


def load(path: str | Path) -> Settings:
    """Read a configuration; raises InputError with file and key."""
    reading.refuse_word(str(path), f"configuration {reading.shown(path)}")
    return parse(reading.yaml_of(path, "configuration"), str(path))


def parse(content: object, where: str) -> Settings:
    """Validate what a YAML file held, and everything that it names; raises InputError with file and key."""
    if isinstance(content, dict):
        content = {**content, "papers": _papers(content.get("papers", {"mgwfbp": {}}), where)}
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        raise InputError(f"configuration {where}: {first_problem(error, Settings)}") from None
    if settings.version != VERSION:
        raise InputError(f"configuration {where}: version {settings.version}; this gradsync reads version {VERSION}")
    for file in (file for paper in settings.papers.values() for file in (paper.published, paper.testbed)):
        if not Path(file).is_file():
            raise InputError(
                f"configuration {where}: {file} does not exist below {Path.cwd()}: run in the project's folder, or "
                "correct the path"
            )
    _refuse_names(settings, where)
    known, stock = schemes.load(settings.schemes), peers.load(settings.peers)
    jobs: set[str] = set()
    shown = list(settings.papers)
    for i, launch in enumerate(settings.training):
        place = f"configuration {where}: training.{i}"
        if launch.job in jobs:
            raise InputError(
                f"{place}: {launch.model} on {launch.ranks} ranks is there already: one entry each, or a `name`"
            )
        jobs.add(launch.job)
        if launch.paper not in shown:
            raise InputError(f"{place}.paper: {launch.paper!r} is not one of this configuration: {', '.join(shown)}")
        steps = launch.ranks, settings.device, launch.scaled, launch.optimizer
        picked = schemes.pick(known, launch.schemes, f"{place}.schemes", *steps, in_phases=True)
        parts = [part for scheme in picked for part in scheme.parts]
        for part in parts if launch.ranks_a_node else ():
            part.refuse_ranks(launch.ranks, launch.ranks_a_node)
        compressors.refuse_training([part.compressor for part in parts], f"{place}.schemes")
        chosen = [scheme.name for scheme in picked]
        for peer in peers.pick(stock, launch.peers, f"{place}.peers"):
            if peer.name in chosen:
                raise InputError(f"{place}.peers: {peer.name!r} is a scheme of this launch too: rename one")
            if peer.plan and peer.plan not in chosen:
                raise InputError(
                    f"{place}.peers: {peer.name} needs the scheme {peer.plan!r}, which is not trained here"
                )
    elastic_launches.refuse(settings, known, jobs, f"configuration {where}: elastic")
    jobs.clear()
    for i, emulation in enumerate(settings.emulated):
        place = f"configuration {where}: emulated.{i}"
        if emulation.job in jobs:
            raise InputError(f"{place}: {emulation.job} is there already: one entry each, or a `name`")
        jobs.add(emulation.job)
        _refuse_emulation(emulation, known, stock, shown, place)
    for paper in settings.papers.values():
        for model, why in paper.needs_profiles.items():
            if model not in settings.profiles:
                raise InputError(f"configuration {where}: profiles: needs {model}, which {why}")
    if settings.external_data is not None and not Path(settings.external_data).is_dir():
        raise InputError(f"configuration {where}: external_data: folder {settings.external_data} does not exist")
    return settings


def _papers(entries: object, where: str) -> dict[str, PaperSettings]:
    """The settings of each paper, in its own type; raises InputError with file and key."""
    place = f"configuration {where}: papers"
    if not isinstance(entries, dict):
        raise InputError(
            f"{place}: must be the names of papers, each with its settings (`mgwfbp: {{}}`), not {names.shown(entries)}"
        )
    typed = {}
    for name, entry in entries.items():
        names.refuse_unknown("paper", name, names.papers(), place)
        if not isinstance(entry, dict | NoneType):
            raise InputError(f"{place}.{name}: must be keys with their values, not {names.shown(entry)}")
        folder, kind = f"config/papers/{name}", _kind(name)
        defaults = {"published": f"{folder}/published.yaml", "testbed": f"{folder}/testbed.yaml"}
        try:
            typed[name] = kind.model_validate({**defaults, **(entry or {})})
        except ValidationError as error:
            raise InputError(f"configuration {where}: {first_problem(error, kind, f'papers.{name}')}") from None
    return typed


def _kind(paper: str) -> type[PaperSettings]:
    """The type of a paper's own settings, which lies in its folder if there is one."""
    if not (Path(__file__).parents[1] / "papers" / paper / "settings.py").is_file():
        return PaperSettings
    kind: type[PaperSettings] = importlib.import_module(f"gradsync.papers.{paper}.settings").Own
    return kind


def _refuse_names(settings: Settings, where: str) -> None:
    """Raises InputError for a model, a data set or a paper that does not exist: a job would fail long afterwards."""
    place = f"configuration {where}"
    for i, launch in enumerate(settings.training):
        names.refuse_unknown("model", launch.model, names.MODELS, f"{place}: training.{i}.model")
        names.refuse_unknown("data set", launch.data, names.DATA, f"{place}: training.{i}.data")
        names.refuse_unknown("optimizer", launch.optimizer, optimizers.names(), f"{place}: training.{i}.optimizer")
        launch.options(settings.device).refuse_precision(f"{place}: training.{i}.precision")
        launch.options(settings.device).refuse_clipping(f"{place}: training.{i}.clip_norm")
        learning_rates.parse(launch.lr_schedule, f"{place}: training.{i}.lr_schedule")
    for i, of_methods in enumerate(settings.elastic):
        names.refuse_unknown("model", of_methods.model, names.MODELS, f"{place}: elastic.{i}.model")
        names.refuse_unknown("data set", of_methods.data, names.DATA, f"{place}: elastic.{i}.data")
    for i, emulation in enumerate(settings.emulated):
        names.refuse_unknown("model", emulation.model, names.MODELS, f"{place}: emulated.{i}.model")
    for model in settings.profiles:
        names.refuse_unknown("model", model, names.MODELS, f"{place}: profiles")
    names.refuse_unknown("model", settings.loading.model, names.MODELS, f"{place}: loading.model")
    if settings.loading.data_folder is None and settings.loading.photographs < settings.loading.batch:
        raise InputError(
            f"{place}: loading.photographs: {settings.loading.photographs}: at least the batch {settings.loading.batch}"
        )
    for i, text in enumerate(settings.cluster_profile.models if settings.cluster_profile else ()):
        entry = f"{place}: cluster_profile.models.{i}"
        if not re.fullmatch(r"[A-Za-z0-9_]+(:(size|batch)=[1-9][0-9]{0,8})*", text):
            raise InputError(f"{entry}: {names.shown(text)}: give NAME, or NAME:size=PIXELS:batch=SAMPLES, or all")
        names.refuse_unknown("model", text.partition(":")[0], ("all", *names.MODELS), entry)
    for kind, profile in (("network", settings.network), ("contention", settings.contention)):
        if profile.smallest >= profile.largest:
            raise InputError(
                f"{place}: {kind}: smallest {profile.smallest}: must be less than largest {profile.largest}"
            )


def _refuse_emulation(
    launch: Emulation,
    known: dict[str, schemes.Scheme],
    stock: dict[str, peers.Peer],
    papers: list[FilePath],
    place: str,
) -> None:
    try:
        network = topologies.parse(launch.topology, launch.ranks)
    except InputError as error:
        raise InputError(f"{place}.topology: {error}") from None
    if launch.paper not in papers:
        raise InputError(f"{place}.paper: {launch.paper!r} is not one of this configuration: {', '.join(papers)}")
    for scheme in schemes.pick(known, launch.schemes, f"{place}.schemes", launch.ranks, optimizer=EMULATED_OPTIMIZER):
        if scheme.in_memory:
            raise InputError(f"{place}.schemes: {scheme.name} {NO_SHARED_MEMORY}")
        needed = scheme.network(launch.ranks, network.ranks_a_node)
        # what is made for a switch goes wherever every rank reaches every other one
        if needed.name != network.name and (network.own_links or not isinstance(needed, Switch)):
            raise InputError(f"{place}.schemes: {scheme.name} sends over {needed.name}, the testbed is {network.name}")
    for peer in peers.pick(stock, launch.peers, f"{place}.peers"):
        try:
            peer.refuse_replay()
        except InputError as error:
            raise InputError(f"{place}.peers: {error}") from None
        if peer.plan and peer.plan not in launch.schemes:
            raise InputError(f"{place}.peers: {peer.name} needs the scheme {peer.plan!r}, which is not in the launch")

"""The configuration of a workflow run: typed and closed, so that a wrong key is named when it is read."""

from __future__ import annotations

from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gradsync import schemes
from gradsync.errors import InputError
from gradsync.plan import first_problem

VERSION = 1


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Training(_Closed):
    """One launch that trains a model under all its schemes in turn."""

    model: str
    ranks: int = Field(ge=1)
    data: str = "digits"
    batch: int = Field(default=32, ge=1, description="samples a rank and iteration")
    epochs: int = Field(default=6, ge=1)
    block: int = Field(default=6, ge=2, description="iterations before the next scheme has its turn")
    lr: float = Field(default=0.02, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    schemes: list[str] | None = Field(default=None, description="null: all")

    @property
    def job(self) -> str:
        """Name of the launch in paths."""
        return f"{self.model}-{self.ranks}"


class Profile(_Closed):
    """A measurement of the layers of a model on this machine, one rank."""

    batch: int = Field(ge=1)
    iterations: int = Field(default=5, ge=2)


class Figure9(_Closed):
    """The simulated clusters of the MG-WFBP paper, and the sizes beyond for the gap to the optimum."""

    nodes: list[int] = Field(default=[4, 8, 16, 32, 64], min_length=1)
    gap_nodes: list[int] = [4, 8, 16, 32, 64, 128, 256]
    forward_shares: list[float] = Field(default=[0.0, 0.5, 1.0], description="t_f as shares of t_b")
    bucket_sweep: int = Field(default=24, ge=2, description="constant bucket sizes tried between 64 KiB and the model")

    @model_validator(mode="after")
    def _within(self) -> Figure9:
        beyond = sorted(set(self.nodes) - set(self.gap_nodes))
        if beyond or min(self.gap_nodes, default=0) < 2:
            raise ValueError(f"gap_nodes must hold every one of nodes (not there: {beyond}), each at least 2")
        if 0.5 not in self.forward_shares or min(self.forward_shares) < 0:
            raise ValueError("forward_shares must hold 0.5, the point that is drawn as a line, and nothing below 0")
        return self


class MLflow(_Closed):
    """Where runs are imported."""

    tracking_uri: str | None = Field(default=None, description="null: results/mlflow.db")
    experiment: str = "gradsync"


class Settings(_Closed):
    """All of it."""

    version: int
    name: str = Field(pattern=r"^[a-z0-9_-]+$")
    seed: int = 0
    schemes: str = "config/schemes.yaml"
    papers: list[str] = ["config/papers/mgwfbp.yaml"]
    cluster: str = "config/clusters/k80-10gbe.yaml"
    external_data: str | None = Field(default=None, description="folder with third-party logs")
    container: str | None = None
    training: list[Training] = []
    profiles: dict[str, Profile] = {"resnet50": Profile(batch=4)}
    figure9: Figure9 = Figure9()
    mlflow: MLflow = MLflow()


def load(path: str | Path) -> Settings:
    """Read a configuration; raises InputError with file and key."""
    try:
        text = Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"configuration {path}: can't be read: {error}") from None
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InputError(f"configuration {path}: not YAML: {' '.join(str(error).split())}") from None
    return parse(content, str(path))


def parse(content: object, where: str) -> Settings:
    """Validate what a YAML file held, and everything that it names; raises InputError with file and key."""
    try:
        settings = Settings.model_validate(content)
    except ValidationError as error:
        raise InputError(f"configuration {where}: {first_problem(error)}") from None
    if settings.version != VERSION:
        raise InputError(f"configuration {where}: version {settings.version}; this gradsync reads version {VERSION}")
    known = schemes.load(settings.schemes)
    jobs: set[str] = set()
    for i, training in enumerate(settings.training):
        place = f"configuration {where}: training.{i}"
        if training.job in jobs:
            raise InputError(f"{place}: {training.model} on {training.ranks} ranks is there already: one entry each")
        jobs.add(training.job)
        for scheme in schemes.pick(known, training.schemes, f"{place}.schemes"):
            try:
                scheme.refuse_ranks(training.ranks)
            except InputError as error:
                raise InputError(f"{place}.schemes: {error}") from None
    if "resnet50" not in settings.profiles:
        raise InputError(f"configuration {where}: profiles: needs resnet50, which Fig. 9(b) is simulated from")
    for file in (*settings.papers, settings.cluster):
        if not Path(file).is_file():
            raise InputError(f"configuration {where}: {file} does not exist")
    if settings.external_data is not None and not Path(settings.external_data).is_dir():
        raise InputError(f"configuration {where}: external_data: folder {settings.external_data} does not exist")
    return settings

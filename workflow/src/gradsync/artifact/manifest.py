"""The manifest of an archive: what it is of, and of each file its size, its hash, and what a fresh run must give."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync.artifact.promises import Promise
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem

VERSION = 2
NAME = "MANIFEST.json"


class File(BaseModel):
    """A file of the archive, by its path below the archive's folder."""

    model_config = ConfigDict(extra="forbid")
    path: str = Field(min_length=1)
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=r"[0-9a-f]{64}")
    promise: Promise


class Image(BaseModel):
    """An image that jobs may have run in: it is not in the archive."""

    model_config = ConfigDict(extra="forbid")
    file: str
    sha256: str


class Manifest(BaseModel):
    """What an archive holds; `code` is the commit that decided the claims, `made` when; `left_out` are large files."""

    model_config = ConfigDict(extra="forbid")
    version: Literal[2] = 2
    gradsync: str
    configuration: str
    config: str
    code: str
    made: str
    promises: dict[str, str]
    images: list[Image]
    left_out: list[str]
    files: list[File]


def parse(content: str, where: str) -> Manifest:
    """Raises InputError for what is no manifest, or of another version."""
    loaded: Any = reading.parse_json(content, where)
    if isinstance(loaded, dict) and loaded.get("version") != VERSION:
        raise InputError(f"{where}: version {loaded.get('version')}; this gradsync reads version {VERSION}")
    try:
        return Manifest.model_validate(loaded)
    except ValidationError as error:
        raise InputError(f"{where}: not a manifest: {first_problem(error, Manifest)}") from None

"""An entry: `entry.yaml`, `configuration.yaml`, `claims.json`, and `tables/<paper>/<id>.{csv,md}`.

`entry.yaml` has the provenance, and the SHA-256 of every other file, so that no file of anybody else's is replaced. The
CSV files hold the rows that were timed, and no others: all else is made in minutes by the quick configuration. The
Markdown is the whole table as people read it, as it was then.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync import claims
from gradsync.claims import Verdict, cells
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.publication import timed

VERSION = 2
FOLDER = "published-results"  # below the folder of configurations
ENTRY, CONFIGURATION, LEDGER, TABLES = "entry.yaml", "configuration.yaml", "claims.json", "tables"
Day = Annotated[str, Field(pattern=r"\d{4}-\d\d-\d\d")]


class Provenance(BaseModel):
    """Where the numbers of an entry come from: `first` and `last` are the days of its runs, in UTC."""

    model_config = ConfigDict(extra="forbid")
    version: Literal[2] = 2
    configuration: str = Field(min_length=1)
    config: str = Field(min_length=1, description="file in the checkout that made it")
    command: str = Field(min_length=1)
    commits: list[str] = Field(min_length=1)
    decided_by: str = Field(min_length=1, description="commit that decided the claims")
    first: Day
    last: Day
    machines: list[str] = Field(min_length=1, description="in words")
    runs: int = Field(ge=1)
    rungs: list[Literal["emulated", "measured"]] = Field(min_length=1)
    files: dict[str, str] = Field(description="SHA-256 of each other file of the entry, by its path")


class PublishedTable(NamedTuple):
    """A table of an entry: the rungs of its timed rows, and its Markdown."""

    paper: str
    id: str
    rungs: tuple[str, ...]
    written: Path


class Entry(NamedTuple):
    """A folder of published results; `verdicts` are those that its timed rungs decided."""

    name: str
    folder: Path
    provenance: Provenance
    verdicts: list[Verdict]
    tables: list[PublishedTable]

    @property
    def days(self) -> str:
        """`2026-11-25`, or `2026-11-25 to 2026-11-26`."""
        first, last = self.provenance.first, self.provenance.last
        return first if first == last else f"{first} to {last}"


def entries(folder: Path) -> list[Entry]:
    """All entries below `folder` (`config/published-results`), by name; raises InputError if one can't be read."""
    return [load(path.parent) for path in sorted(folder.glob(f"*/{ENTRY}"))]


def load(folder: Path) -> Entry:
    """The entry in a folder; raises InputError if it is none, or of another version."""
    known = provenance(folder)
    tables = [_table(file) for file in sorted((folder / TABLES).glob("*/*.csv"))]
    return Entry(folder.name, folder, known, claims.read(folder / LEDGER), tables)


def provenance(folder: Path) -> Provenance:
    """Where the entry in a folder comes from; raises InputError as `load` does."""
    path = folder / ENTRY
    content = reading.yaml_of(path, "entry of published results")
    if isinstance(content, dict) and content.get("version") != VERSION:
        raise InputError(
            f"entry of published results {path}: version {content.get('version')}; this gradsync reads version "
            f"{VERSION}: move the folder away, and publish the results again"
        )
    try:
        return Provenance.model_validate(content)
    except ValidationError as error:
        raise InputError(f"entry of published results {path}: {first_problem(error, Provenance)}") from None


def hash_of(path: Path) -> str:
    """The SHA-256 of a file; raises InputError if it can't be read."""
    return hashlib.sha256(reading.raw(path, "file of an entry")).hexdigest()


def _table(file: Path) -> PublishedTable:
    rows = cells.read(file) or []
    if not rows or len(timed.timed(rows)) < len(rows):
        raise InputError(f"table {file}: it has rows that were not timed, or no rows: publish the results again")
    written = file.with_suffix(".md")
    if not written.is_file():
        raise InputError(f"table {written}: it is missing beside {file.name}: publish the results again")
    return PublishedTable(file.parent.name, file.stem, timed.rungs(rows), written)

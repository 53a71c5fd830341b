"""Paper files (`config/papers/*.yaml`): what a paper publishes and claims, each with its place in the paper."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gradsync.claims.expressions import Keys, Missing, Walk
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem

Rung = Literal["derived", "simulated", "emulated", "measured"]
"""derived: published numbers compared with one another, closed forms, and what is counted; nothing is timed."""


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Meta(_Closed):
    """Which paper this is; `key` names its folder of tables, `nickname` is what pages call it."""

    key: str = Field(pattern=r"^[a-z0-9_]+$")
    nickname: str = Field(min_length=1, max_length=30)
    title: str
    authors: tuple[str, ...]
    venue: str


class Published(_Closed):
    """A number of the paper; if it belongs to a table, with the keys of its row (schemes in the paper's names)."""

    id: str
    place: str
    text: str
    value: float
    unit: str
    table: str | None = None
    model: str | None = None
    nodes: int | None = None
    scheme: str | None = None
    over: str | None = None
    note: str | None = None


class Remark(_Closed):
    """Something in the paper that has to be read with care."""

    id: str
    place: str
    text: str


class Without(_Closed):
    """Points of the band that a claim is not decided on: those with `point` among the parts of their label."""

    point: str = Field(min_length=1)
    why: str = Field(min_length=1)

    def names(self, label: str) -> bool:
        """Whether a label is that of such a point."""
        return self.point in label.split(", ")


class PostHoc(_Closed):
    """A change of a claim after, or while, its value was seen on `rungs`: the commit, how it was changed, and why."""

    text: str = Field(min_length=1)
    rungs: tuple[Rung, ...] = ()  # none named: all


class Claim(_Closed):
    """One claim and how it is checked.

    `by_construction`: in our own model it is true whatever the numbers are (`why`), so it isn't counted if it is
    derived or simulated. `universal`: claimed for every input, so that one failing point of the band refutes it, and
    none that fails is no proof. `one_sided`: why a simulation may confirm it but can't refute it (for example, it
    leaves out what would speak for the claim). `post_hoc`: it was changed after a value was seen; then it isn't
    counted. `without`: points of the band that were fitted to the claim's own numbers.
    """

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    place: str
    text: str
    table: str = Field(pattern=r"^[a-z0-9_]+$")
    check: str = Field(max_length=1000)
    rungs: tuple[Rung, ...] = Field(min_length=1)
    by_construction: bool = False
    why: str | None = None
    universal: bool = False
    one_sided: str | None = None
    post_hoc: PostHoc | None = None
    without: tuple[Without, ...] = ()
    note: str | None = None

    def changed(self, rung: str) -> str:
        """How it was changed after its value on this rung was seen; empty if it wasn't changed."""
        if self.post_hoc is None or (self.post_hoc.rungs and rung not in self.post_hoc.rungs):
            return ""
        return self.post_hoc.text

    def leaves_out(self, label: str) -> bool:
        """Whether the claim is not decided at this point of the band."""
        return any(each.names(label) for each in self.without)


class Paper(_Closed):
    """A paper file; `schemes` maps the paper's names to ours, or to null if there is none yet.

    `exact`: by table, columns that need no interval although the others are timed: what is counted, or computed from
    what is not timed. All others need one.
    """

    version: Literal[1]
    meta: Meta
    schemes: dict[str, str | None]
    published: tuple[Published, ...] = ()
    remarks: tuple[Remark, ...] = ()
    exact: dict[str, tuple[str, ...]] = {}
    claims: tuple[Claim, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Paper:
        for what, entries in (("claims", self.claims), ("published", self.published)):
            repeated = [name for name, times in Counter(entry.id for entry in entries).items() if times > 1]
            if repeated:
                raise ValueError(f"{what}: id {repeated[0]!r} appears twice")
        for claim in self.claims:
            if claim.by_construction != (claim.why is not None):
                raise ValueError(f"claim {claim.id!r}: by_construction and why belong together")
            if claim.post_hoc and (unknown := {*claim.post_hoc.rungs} - {*claim.rungs}):
                raise ValueError(f"claim {claim.id!r}: post_hoc: it is not decided on rung {min(unknown)!r}")
        if unused := self.exact.keys() - {claim.table for claim in self.claims}:
            raise ValueError(f"exact: no claim is about table {min(unused)!r}")
        for entry in self.published:
            for scheme in {entry.scheme, entry.over} - {None, *self.schemes}:
                raise ValueError(f"published {entry.id!r}: scheme {scheme!r} is not among the paper's schemes")
        return self


def load(paper_file: str | Path) -> Paper:
    """Read a paper file and check it, with its checks; raises InputError that names the file and the key."""
    try:
        paper = Paper.model_validate(reading.yaml_of(paper_file, "paper file"))
    except ValidationError as error:
        raise InputError(f"paper file {paper_file}: {first_problem(error, Paper)}") from None

    def refuse_unknown(column: str, keys: Keys) -> float:
        if "scheme" in keys and keys["scheme"] not in paper.schemes:
            raise InputError(f"scheme {keys['scheme']!r} is not among the paper's ({', '.join(paper.schemes)})")
        if fixed := {"rung", "assumption"} & keys.keys():
            raise InputError(f"{min(fixed)} is no key: the ledger goes through all of them")
        return math.nan

    for claim in paper.claims:
        with naming(paper_file, claim):
            try:
                Walk(refuse_unknown).run(claim.check)
            except Missing as reason:
                raise InputError(str(reason)) from None
    return paper


def of_paper(name: str, paper_file: str | Path) -> Paper:
    """As `load`; raises InputError if the file is of another paper."""
    paper = load(paper_file)
    if paper.meta.key != name:
        raise InputError(f"paper file {paper_file}: meta.key: must be {name}, not {paper.meta.key!r}")
    return paper


@contextmanager
def naming(paper_file: str | Path, claim: Claim) -> Iterator[None]:
    """Makes any InputError from the check of a claim name the file and the claim."""
    try:
        yield
    except InputError as error:
        raise InputError(f"paper file {paper_file}, claim {claim.id!r}, check: {error}") from None

"""Described networks by name, and a number of ranks as nodes and the ranks of each."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradsync import names
from gradsync.errors import InputError
from gradsync.files import packaged, reading
from gradsync.files.problems import first_problem

FILE = "config/networks/described.yaml"
INSIDE = "pcie3"  # of a node, unless another is named


class Ranks(int):
    """A number of ranks: N, or NODESxRANKS, as 16x8, of which the text is kept.

    Raises ValueError for anything else.
    """

    nodes: tuple[int, int] | None

    def __new__(cls, text: str | int) -> Ranks:
        """128, or 16x8."""
        nodes, cross, local = str(text).partition("x")
        if not cross:
            made = super().__new__(cls, nodes)
            made.nodes = None
            return made
        made = super().__new__(cls, int(nodes) * int(local))
        made.nodes = int(nodes), int(local)
        return made


class Link(BaseModel):
    """What connects two nodes, or two ranks of a node."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    text: str
    bits_per_second: float = Field(gt=0, allow_inf_nan=False)
    share: float = Field(gt=0, le=1)
    alpha_seconds: float = Field(ge=0, allow_inf_nan=False)
    source: str

    @property
    def bytes_per_second(self) -> float:
        """What messages get."""
        return self.bits_per_second * self.share / 8


class Networks(BaseModel):
    """All that are described."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    between: dict[str, Link]
    inside: dict[str, Link]


class Described(BaseModel):
    """A network that was named: what `--allreduce` takes of its links, and what a reader must know."""

    allreduce: str
    text: str
    source: str


def load(path: Path) -> Networks:
    """Those of a file; raises InputError with file and key."""
    try:
        return Networks.model_validate(reading.yaml_of(path, "networks"))
    except ValidationError as error:
        raise InputError(f"{path}: {first_problem(error, Networks)}") from None


def described(name: str, in_nodes: bool) -> Described:
    """The network of that name, `25gbe` or `25gbe,nvlink2`; `in_nodes`: several ranks of a node share its link.

    Raises InputError for one that is not described.
    """
    known = load(packaged.file(FILE))
    between, comma, inside = name.partition(",")
    inside = inside if comma else INSIDE
    names.refuse_unknown("network", between, known.between, "--network")
    names.refuse_unknown("network inside nodes", inside, known.inside, "--network")
    link, local = known.between[between], known.inside[inside]
    if in_nodes:
        behind = max(link.alpha_seconds - local.alpha_seconds, 0.0) / 2  # a message crosses the links of two nodes
        rates = f"inside={local.bytes_per_second:g},between={link.bytes_per_second:g},latency_between={behind:g}"
        return Described(
            allreduce=f"alpha={local.alpha_seconds:g},{rates}",
            text=f"{link.text}; inside a node {local.text}",
            source=f"{link.source}. {local.text}: {local.source}",
        )
    if comma:
        raise InputError(f"--network {name}: one rank a node has nothing inside: leave out {inside}")
    rate = f"alpha={link.alpha_seconds:g},bandwidth={link.bytes_per_second:g}"
    return Described(allreduce=rate, text=link.text, source=link.source)

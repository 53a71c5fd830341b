"""Topologies: which links a message between two ranks crosses, and what a network costs to build.

A topology is one file here with a class of its own, named in `TOPOLOGY`; discovery finds the file, its name is the
topology's name. A text names it with its numbers (`bcube:3,2`), or by its name alone, which then stands for the one
made for a number of ranks. Ranks are numbered level by level: level 0 is the last digit of a rank's id, neighbours
there are nearest. A cable carries both directions at the same time: each is a link.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from math import inf, isqrt, prod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from gradsync.errors import InputError
from gradsync.limits import MOST_HOSTS
from gradsync.names import modules_in, refuse_unknown

NO_LINK = -1


class Equipment(NamedTuple):
    """What a network is built of: switches, ports of all of them, network interfaces of all hosts."""

    switches: int
    ports: int
    nics: int


class Topology(ABC):
    """Ranks and the links between them; subclasses are frozen dataclasses of whole numbers."""

    kinds: ClassVar[tuple[str, ...]] = ("link",)
    """Kinds of links: those of a kind are equally fast."""
    own_links: ClassVar[bool] = False
    """True if each level has links of its own at every rank, so that levels can be used at the same time."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Sizes of the levels, nearest first; their product is the number of hosts."""

    @abstractmethod
    def link_kind(self) -> np.ndarray:
        """The kind of each link, as an index into `kinds`.  # (links,)"""

    @abstractmethod
    def route(self, source: np.ndarray, destination: np.ndarray, rail: np.ndarray) -> np.ndarray:
        """Links that each transfer crosses, NO_LINK for the hops that it lacks.  # (transfers, hops)

        `rail` is the link that a rank sends on first, if it has several.  # all (transfers,)
        """

    @abstractmethod
    def equipment(self) -> Equipment:
        """What the whole network is built of."""

    @classmethod
    @abstractmethod
    def numbers_for(cls, ranks: int) -> tuple[int, ...]:
        """Numbers of a topology for so many ranks; raises InputError if there is no such topology."""

    @classmethod
    def numbers_on(cls, ranks: int, ranks_a_node: int) -> tuple[int, ...]:
        """The same if so many ranks share a node; for a topology that is made of nodes."""
        return cls.numbers_for(ranks)

    @cached_property
    def hosts(self) -> int:
        """Ranks that it holds."""
        return prod(self.shape)

    @property
    def rails(self) -> int:
        """Links of a rank that a message can leave on."""
        return len(self.shape) if self.own_links else 1

    @property
    def ranks_a_node(self) -> int | None:
        """How many neighbouring ranks share a machine; None if the topology says nothing of machines."""
        return None

    @property
    def name(self) -> str:
        """The text that names it in configurations: `bcube:3,2`."""
        kind = type(self).__module__.rpartition(".")[2]
        return f"{kind}:{','.join(map(str, astuple(self)))}"  # type: ignore[call-overload]

    def shape_of(self, ranks: int) -> tuple[int, ...]:
        """The levels that so many ranks fill, in order; raises InputError if they don't fit."""
        if not 1 <= ranks <= self.hosts:
            raise InputError(f"topology {self.name!r} holds 1 to {self.hosts} ranks, not {ranks}")
        filled: list[int] = []
        for size in self.shape:
            if ranks == 1:
                break
            if ranks < size:
                filled.append(ranks)
                ranks = 1
            elif ranks % size:
                # a collective that works level by level needs whole groups of the levels below
                return (prod(filled) * ranks,)
            else:
                filled.append(size)
                ranks //= size
        return tuple(filled) or (1,)


@dataclass(frozen=True)
class Speeds:
    """How fast links are: `bandwidth` in bytes per second and `latency` in seconds, one for all kinds or by kind.

    `alpha` is the start-up of a message in seconds, whatever links it crosses; latencies of its links add to it.
    Raises InputError for a number that makes no sense.
    """

    alpha: float = 0.0
    bandwidth: float | Mapping[str, float] = 1.0
    latency: float | Mapping[str, float] = field(default=0.0)

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < inf:
            raise InputError(f"alpha {self.alpha:g} s: must be finite and not negative")
        for name, value in _each("bandwidth", self.bandwidth):
            if not 0 < value < inf:
                raise InputError(f"{name} {value:g} B/s: must be finite and above 0")
        for name, value in _each("latency", self.latency):
            if not 0 <= value < inf:
                raise InputError(f"{name} {value:g} s: must be finite and not negative")

    def of(self, topology: Topology) -> tuple[np.ndarray, np.ndarray]:
        """(bandwidth, latency) of each link; raises InputError for a kind that is missing.  # both (links,)"""
        kind = topology.link_kind()
        return tuple(
            np.array([_of_kind(what, values, name, topology) for name in topology.kinds], float)[kind]
            for what, values in (("bandwidth", self.bandwidth), ("latency", self.latency))
        )


def _each(what: str, values: float | Mapping[str, float]) -> list[tuple[str, float]]:
    if isinstance(values, Mapping):
        return [(f"{what} of {kind!r} links", value) for kind, value in values.items()]
    return [(what, values)]


def _of_kind(what: str, values: float | Mapping[str, float], kind: str, topology: Topology) -> float:
    if not isinstance(values, Mapping):
        return values
    if unknown := sorted(values.keys() - set(topology.kinds)):
        raise InputError(
            f"topology {topology.name!r} has no {unknown[0]!r} links, whose {what} is given; it has: "
            f"{', '.join(topology.kinds)}"
        )
    if kind not in values:
        raise InputError(f"topology {topology.name!r} needs the {what} of its {kind!r} links too")
    return values[kind]


def names() -> list[str]:
    """Names of all topologies, sorted."""
    return modules_in(__path__)


def get(name: str) -> Any:
    """The class of a topology; raises InputError that lists the known ones."""
    refuse_unknown("topology", name, names())
    return importlib.import_module(f"{__name__}.{name}").TOPOLOGY


def parse(text: str, ranks: int | None = None, ranks_a_node: int | None = None) -> Topology:
    """`bcube:3,2`, or `bcube` for a number of ranks; raises InputError for what does not exist or makes no sense.

    `ranks_a_node`: how many of them really share a node, if that is known.
    """
    name, separator, numbers = text.partition(":")
    kind = get(name)
    parameters = [parameter.name for parameter in fields(kind)]
    if not separator and ranks is not None:
        if not 1 <= ranks <= MOST_HOSTS:
            raise InputError(f"topology {name!r}: {ranks} ranks: 1 to {MOST_HOSTS}")
        return kind(*(kind.numbers_on(ranks, ranks_a_node) if ranks_a_node else kind.numbers_for(ranks)))
    try:
        values = [int(number) for number in numbers.split(",")]
    except ValueError:
        values = []
    if len(values) != len(parameters):
        raise InputError(f"topology {text!r}: write {name}:{','.join(parameter.upper() for parameter in parameters)}")
    topology: Topology = kind(*values)
    if ranks is not None:
        topology.shape_of(ranks)
    return topology


def most_even(ranks: int) -> tuple[int, int]:
    """(rows, columns) of the most even grid of so many ranks, rows <= columns; one row if `ranks` is prime."""
    rows = next(rows for rows in range(isqrt(ranks), 0, -1) if ranks % rows == 0)
    return rows, ranks // rows


def refuse_numbers(topology: Topology, least: int, *parameters: str) -> None:
    """Raises InputError that names the first of these parameters below `least`, and for more than MOST_HOSTS hosts."""
    for parameter in parameters:
        if (value := getattr(topology, parameter)) < least:
            raise InputError(f"topology {topology.name!r}: {parameter.upper()} = {value}: at least {least}")
    if topology.hosts > MOST_HOSTS:
        raise InputError(f"topology {topology.name!r}: {topology.hosts} hosts: at most {MOST_HOSTS}")

"""A chip in parts, each with cores of its own and a copy of weights and data in its own memory (SC17, Section 6.2).

A chip is this machine's, or one that a file describes (`config/chips/`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, ValidationError

from gradsync.clusters.nodes import Closed
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import MOST_RANKS
from gradsync.plan import piece

MOST_BYTES = 1e18


class Core(NamedTuple):
    """A core: its NUMA node, its socket, its number there, and its processors, as many as it has threads."""

    node: int
    socket: int
    number: int
    cpus: tuple[int, ...]

    @property
    def place(self) -> tuple[int, int, int]:
        """What tells it from other cores, whichever of its processors are meant: node, socket, number."""
        return self[:3]


class Chip(Closed):
    """A described chip. `fast_memory_bytes`: of the memory that copies shall lie in, of all parts together."""

    version: int = Field(ge=1, le=1)
    name: str
    cores: int = Field(ge=1, le=MOST_RANKS)
    fast_memory_bytes: float = Field(gt=0, le=MOST_BYTES, allow_inf_nan=False)
    fast_bytes_per_second: float = Field(gt=0, allow_inf_nan=False)
    source: str


def load(path: str | Path) -> Chip:
    """A described chip; raises InputError for a file that can't be read or describes none."""
    content = reading.parse_yaml(reading.text(path, "chip", reading.MOST_CONFIGURED_BYTES), f"chip {path}")
    try:
        return Chip.model_validate(content)
    except ValidationError as error:
        raise InputError(f"chip {path}: {first_problem(error, Chip)}") from None


def refuse_parts(count: int, cores: int, where: str) -> None:
    """Raises InputError, which says `where`, unless so many parts have a core each."""
    if not 1 <= count <= cores:
        raise InputError(f"{where}: {count} parts of {cores} core(s): a part needs a core of its own: 1 to {cores}")


def refuse_copies(count: int, weights_bytes: float, data_bytes: float, memory_bytes: float, where: str) -> None:
    """Raises InputError if so many copies of weights and data don't fit into a memory: parts x (weights + data)."""
    whole = count * (weights_bytes + data_bytes)
    if whole > memory_bytes:
        most = int(memory_bytes // (weights_bytes + data_bytes))
        raise InputError(
            f"{where}: {count} copies of {weights_bytes / 1e6:.1f} MB of weights and {data_bytes / 1e6:.1f} MB of data "
            f"are {whole / 1e6:.1f} MB, and the memory for them has {memory_bytes / 1e6:.1f} MB: "
            + (f"at most {most} parts" if most else "not even one fits: take a smaller model, or less data")
        )


def cut(cores: Sequence[Core], count: int) -> list[tuple[Core, ...]]:
    """The cores of each of so many parts: no part has cores of two NUMA nodes if they can be dealt so.

    Sizes are as even as they can be. Raises InputError for more parts than cores.
    """
    refuse_parts(count, len(cores), "this machine")
    nodes: dict[int, list[Core]] = {}
    for core in sorted(cores):
        nodes.setdefault(core.node, []).append(core)
    each, rest = divmod(count, len(nodes))
    if rest or min(map(len, nodes.values())) < each:
        nodes, each = {0: sorted(cores)}, count
    return [tuple(part[slice(*piece(0, len(part), i, each))]) for part in nodes.values() for i in range(each)]

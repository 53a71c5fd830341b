"""Sparse collectives: how the elements of a message that a compressor selects reach all ranks, and are summed.

A sparse collective is one file of this folder with

    TOPOLOGY          the topology that it is made for
    way(shape) -> Way the axes on which it sends, on levels of these sizes (nearest first)
    LEVELS            optional: how many levels its topology must have, each of which ranks fill whole

A message on its `Way`: a dense reduce-scatter over the axis `inside`, if there is one; each rank encodes what it then
has; the ranks of the axis `between` gather one another's values and indices, and decode their sum; a dense all-gather
over `inside` (`transforms/_sparse_messages.py`). Discovery finds the file; its name is the collective's name.
"""

from __future__ import annotations

import importlib
from operator import gt
from typing import Any, NamedTuple

import numpy as np

from gradsync import compressors
from gradsync.errors import InputError
from gradsync.names import modules_in, refuse_unknown
from gradsync.plan import WORLD, Axis
from gradsync.topologies import Topology

INDEX_DTYPE = "int32"
MOST_ELEMENTS = 1 << 31  # of a message: the paper's indices have 32 bits


class Way(NamedTuple):
    """The axes of a sparse collective: `places` on each.

    `inside`: over it ranks sum densely before they encode, None if they don't; `between`: over it they gather.
    """

    inside: Axis | None
    between: Axis

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Those that the plan needs, outermost first; none if all ranks gather."""
        return () if self.inside is None else (self.between, self.inside)

    @property
    def ranks(self) -> int:
        """All of them together."""
        return self.between.size * self.slices

    @property
    def slices(self) -> int:
        """How many slices a message is cut into, each encoded by other ranks."""
        return 1 if self.inside is None else self.inside.size


class Compression(NamedTuple):
    """What is sent of each message, and how. `density`: the share of its elements, in (0, 1].

    With `feedback` what isn't sent stays in a residual, and is added to the next gradient.
    """

    way: Way
    compressor: str
    density: float
    feedback: bool = True

    def describe(self) -> str:
        """One line for people."""
        kept = "error feedback" if self.feedback else "no error feedback"
        return f"{self.compressor}, density {self.density:g}, {kept}"

    def selected(self, elements: Any) -> Any:
        """How many values each rank sends of a message of so many elements: max(1, round(rho d / n)) (CT-E16).

        d counts as the next multiple of n. 0 if a slice would have no element: then the message travels dense. Arrays
        of elements give arrays.
        """
        elements, slices = np.asarray(elements), self.way.slices
        longest = -(-elements // slices)
        k = np.maximum(1, np.rint(self.density * longest))
        return np.where(elements < slices, 0, k).astype(np.int64)


def everyone(ranks: int) -> Axis:
    """The axis of all ranks."""
    return Axis(WORLD, ranks)


def names() -> list[str]:
    """Names of all sparse collectives, sorted."""
    return modules_in(__path__)


def get(name: str) -> Any:
    """The module of a sparse collective; raises InputError that lists the known ones."""
    refuse_unknown("sparse collective", name, names())
    return importlib.import_module(f"{__name__}.{name}")


def topology_of(name: str) -> str:
    """Name of the topology that a sparse collective is made for."""
    return str(get(name).TOPOLOGY)


def way(name: str, topology: Topology, ranks: int) -> Way:
    """The axes of so many ranks on a topology; raises InputError for levels that the collective can't use."""
    module, shape = get(name), topology.shape_of(ranks)
    levels = getattr(module, "LEVELS", None)
    if levels is not None and (len(topology.shape) != levels or any(map(gt, shape, topology.shape))):
        raise InputError(
            f"collective {name!r} needs {levels} levels that ranks fill whole, and {ranks} rank(s) don't on topology "
            f"{topology.name!r}: choose {module.TOPOLOGY}, with whole nodes"
        )
    found: Way = module.way(shape)
    return found


def refuse(compressor: str, density: float) -> None:
    """Raises InputError for a compressor that doesn't exist, and for a density outside (0, 1]."""
    compressors.get(compressor)
    if not 0 < density <= 1:
        raise InputError(f"density {density:g}: a share of the elements, above 0 and at most 1")

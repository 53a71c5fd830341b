"""Sparse collectives: how what a compressor makes of a message reaches all ranks, and is summed.

A sparse collective is one file of this folder with

    TOPOLOGY          the topology that it is made for
    way(shape) -> Way the axes on which it sends, on levels of these sizes (nearest first)
    LEVELS            optional: how many levels its topology must have, each of which ranks fill whole

A message on its `Way`: a dense reduce-scatter over the axis `inside`, if there is one; each rank encodes what it then
has; the ranks of the axis `between` gather one another's values and indices, or codes and scales, and decode their sum;
a dense all-gather over `inside` (`transforms/_sparse_messages.py`). Discovery finds the file; its name is the
collective's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from operator import gt
from typing import Any, NamedTuple

import numpy as np

from gradsync import compressors
from gradsync.errors import InputError
from gradsync.kernels import DECODE, ENCODE
from gradsync.names import modules_in, refuse_unknown
from gradsync.plan import WORLD, Axis
from gradsync.topologies import Topology

INDEX_DTYPE, CODE_DTYPE = "int32", "uint8"
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


class Sent(NamedTuple):
    """One of the ranges that a rank sends of a message: its buffer, type (empty: the gradients' own), elements."""

    buffer: str
    dtype: str
    elements: Any


class Compression(NamedTuple):
    """What is sent of each message, and how.

    `density`: the share of its elements that are selected, in (0, 1]; of a code, which has all of them, it says
    nothing. With `feedback` what isn't sent stays in a residual, and is added to the next gradient. `options` are the
    compressor's own.
    """

    way: Way
    compressor: str
    density: float = 1.0
    feedback: bool = True
    options: tuple[tuple[str, float], ...] = ()

    def describe(self) -> str:
        """One line for people."""
        kept = "error feedback" if self.feedback else "no error feedback"
        how = [f"{name} {value:g}" for name, value in self.options] if self.codes else [f"density {self.density:g}"]
        return ", ".join((self.compressor, *how, kept))

    @property
    def codes(self) -> bool:
        """Whether messages are codes of all elements."""
        return compressors.codes(self.compressor)

    @property
    def kernels(self) -> tuple[str, str]:
        """What encodes and what decodes."""
        return f"{ENCODE}{self.compressor}", f"{DECODE}{self.compressor}" if self.codes else "decode_sum"

    def sent(self, elements: Any) -> tuple[Sent, Sent]:
        """What each rank sends of a message of so many elements, of which arrays give arrays.

        Nothing if a slice would have no element: then the message travels dense.
        """
        if not self.codes:
            k = self.selected(elements)
            return Sent("values", "", k), Sent("indices", INDEX_DTYPE, k)
        elements = np.asarray(elements)
        size = compressors.size(self.compressor, self.longest(elements), dict(self.options))
        codes, scales = (np.where(elements < self.way.slices, 0, each).astype(np.int64) for each in size)
        return Sent("codes", CODE_DTYPE, codes), Sent("scales", "", scales)

    def longest(self, elements: Any) -> Any:
        """The elements of the longest slice of a message."""
        return -(-elements // self.way.slices)

    def selected(self, elements: Any) -> Any:
        """How many values each rank sends of a message of so many elements: max(1, round(rho d / n)) (CT-E16).

        d counts as the next multiple of n. 0 if a slice would have no element: then the message travels dense. Arrays
        of elements give arrays.
        """
        elements = np.asarray(elements)
        k = np.maximum(1, np.rint(self.density * self.longest(elements)))
        return np.where(elements < self.way.slices, 0, k).astype(np.int64)


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


def way(name: str, topology: Topology, ranks: int, shown: str = "") -> Way:
    """The axes of so many ranks on a topology; raises InputError for levels that the collective can't use.

    `shown`: the name of the collective in messages, if it only has the axes of this one.
    """
    module, shape = get(name), topology.shape_of(ranks)
    levels = getattr(module, "LEVELS", None)
    if levels is not None and (len(topology.shape) != levels or any(map(gt, shape, topology.shape))):
        raise InputError(
            f"collective {(shown or name)!r} needs {levels} levels that ranks fill whole, and {ranks} rank(s) don't on "
            f"topology {topology.name!r}: choose {module.TOPOLOGY}, with whole nodes"
        )
    found: Way = module.way(shape)
    return found


def refuse(compressor: str, density: float, options: Mapping[str, Any]) -> None:
    """Raises InputError for a compressor that doesn't exist, its options, and a density outside (0, 1]."""
    compressors.refuse_options(compressor, options)
    if not 0 < density <= 1:
        raise InputError(f"density {density:g}: a share of the elements, above 0 and at most 1")

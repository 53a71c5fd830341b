"""Collectives as rounds of transfers: how one message travels.

A collective is one file here that describes an all-reduce, or what its KINDS say, over the levels of a topology
(`shape`: sizes of the levels, nearest first; their product is the number of ranks) of a message that is cut into equal
pieces:

    pieces(shape) -> int
    rounds(shape, root) -> Iterator[Round]
    TOPOLOGY, POSTCONDITION     the topology it is made for, and what holds on every rank at the end
    refuse(shape)               optional: raises InputError for levels that it can't serve
    LEVELS_AT_ONCE              optional, True: needs a topology whose levels have links of their own
    halves(shape) -> bool       optional, True: the rounds that add leave the sum of piece r on rank r, so that they are
                                a reduce-scatter, and the rounds after them an all-gather
    ROOTED                      optional, True: the rounds that add leave the sum on the root, so that they are a
                                reduce, and the rounds after them a broadcast
    KINDS                       optional: what its rounds are, if they are no all-reduce
    server(message, ranks)      optional: which rank is the root of message number `message` of an iteration
    IN_MEMORY                   optional, True: nothing is sent; ranks of one machine read what others have in memory
    CHUNKED                     optional, True: `pieces` and `rounds` take `chunks`, into how many a pipeline cuts a
                                message, beside; without it they take a number of their own

A round is arrays of transfers, so that a round of many ranks is a few vectorised operations. Ranks run the rounds in
step: a rank sends what it had before the round. `native` (the backend's own) has no rounds and no file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache, lru_cache
from math import prod
from operator import gt
from typing import Any, Final, NamedTuple

import numpy as np

from gradsync import topologies
from gradsync.errors import InputError
from gradsync.names import modules_in, near
from gradsync.topologies import Topology

NATIVE = "native"
ALL_REDUCE: Final = "all_reduce"
REDUCE_SCATTER: Final = "reduce_scatter"
ALL_GATHER: Final = "all_gather"
REDUCE: Final = "reduce"
BROADCAST: Final = "broadcast"
ALL_TO_ALL: Final = "all_to_all"
KINDS = (ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, REDUCE, BROADCAST, ALL_TO_ALL)
SUMS = (ALL_REDUCE, REDUCE_SCATTER, REDUCE)  # those that add
POSTCONDITION: dict[str, Any] = {
    ALL_REDUCE: "sum",
    REDUCE_SCATTER: "shard",
    ALL_GATHER: "gather",
    BROADCAST: "copy",
    REDUCE: "root_sum",
    ALL_TO_ALL: "exchange",
}

Shape = tuple[int, ...]


class Round(NamedTuple):
    """Transfers of one round: rank source[i] sends `pieces[i]` pieces from first[i] on to destination[i].

    The destination adds them to its own if `adds`, else they replace its own. `rail[i]` is the link that the source
    sends on, if it has several. `into[i]` is the first piece that they replace; without it, their own places.
    # all (transfers,)
    """

    source: np.ndarray
    destination: np.ndarray
    first: np.ndarray
    pieces: np.ndarray
    adds: bool
    rail: np.ndarray
    into: np.ndarray | None = None

    @property
    def place(self) -> np.ndarray:
        """The first piece at the destination that a transfer adds to or replaces.  # (transfers,)"""
        return self.first if self.into is None else self.into


def on_one_rail(
    source: np.ndarray, destination: np.ndarray, first: np.ndarray, pieces: np.ndarray, adds: bool
) -> Round:
    """A round of ranks that have one link each."""
    return Round(source, destination, first, pieces, adds, np.zeros_like(source))


def names(kind: str = ALL_REDUCE) -> list[str]:
    """Names of those of a kind, between some ranks at least; sorted."""
    return [name for name in described() if kind in kinds(name, (2,))]


def described() -> list[str]:
    """Names of all collectives that are described by rounds, of whatever kind; sorted."""
    return modules_in(__path__)


@cache  # plans ask for every transfer of theirs
def get(name: str) -> Any:
    """The module of a collective; raises InputError that lists the known ones."""
    if name not in (every := described()):
        known = [NATIVE, *every]
        raise InputError(f"collective {name!r} does not exist; {near(name, known)}there are: {', '.join(known)}")
    return importlib.import_module(f"{__name__}.{name}")


def topology_of(name: str) -> str:
    """Name of the topology that a collective is made for."""
    return "switch" if name == NATIVE else str(get(name).TOPOLOGY)


def shape_on(name: str, topology: Topology, ranks: int, kind: str = ALL_REDUCE) -> Shape:
    """The levels that `ranks` ranks fill; raises InputError if the topology lacks links that are needed."""
    shape = topology.shape_of(ranks)
    if name != NATIVE:
        refuse_links(name, topology.name)
        refuse(name, shape, kind)
        if _levels_at_once(name) and any(map(gt, shape, topology.shape)):
            raise InputError(
                f"collective {name!r} sends on all levels at once, and {ranks} ranks fill no whole levels of topology "
                f"{topology.name!r}: use all of its hosts, or fewer of its levels"
            )
    return shape


def _levels_at_once(name: str) -> bool:
    return bool(getattr(get(name), "LEVELS_AT_ONCE", False))


def refuse_links(name: str, topology: str) -> None:
    """Raises InputError if a topology (`bcube`, or `bcube:3,2`) lacks links, or the memory, that a collective needs."""
    needed, kind = topology_of(name), topologies.get(topology.partition(":")[0])
    if in_memory(name) and topologies.get(needed) is not kind:
        raise InputError(
            f"collective {name!r} sums in memory that all ranks share, and topology {topology!r} has hosts with memory "
            f"of their own: choose topology {needed}, or another collective"
        )
    if name != NATIVE and _levels_at_once(name) and not kind.own_links:
        able = [kind for kind in topologies.names() if topologies.get(kind).own_links]
        raise InputError(
            f"collective {name!r} sends on all levels at once, and topology {topology!r} has no links of their own "
            f"for them: choose one of {', '.join(able)}"
        )


def refuse(name: str, shape: Shape, kind: str = ALL_REDUCE) -> None:
    """Raises InputError for levels that a collective can't serve, or that it can't do such a kind of collective on."""
    refuse_shape = getattr(get(name), "refuse", None)
    if refuse_shape is not None:
        refuse_shape(shape)
    if kind not in kinds(name, shape):
        able = [other for other in described() if kind in kinds(other, shape)]
        raise InputError(
            f"collective {name!r} has no {kind} on {' x '.join(map(str, shape))} ranks; there are those of "
            f"{', '.join([NATIVE, *able])}"
        )


def in_memory(name: str) -> bool:
    """Whether ranks read what others have in memory that all of them share, so that nothing is sent."""
    return name != NATIVE and bool(getattr(get(name), "IN_MEMORY", False))


def halves(name: str, shape: Shape) -> bool:
    """Whether the rounds of a collective are those of a reduce-scatter and then those of an all-gather."""
    in_halves = getattr(get(name), "halves", None)
    return in_halves is not None and bool(in_halves(shape))


def kinds(name: str, shape: Shape) -> tuple[str, ...]:
    """Of which kinds the rounds of a collective are, the whole of them or those that add or that don't."""
    module = get(name)
    scattered = (REDUCE_SCATTER, ALL_GATHER) if halves(name, shape) else ()
    rooted = (REDUCE, BROADCAST) if getattr(module, "ROOTED", False) else ()
    return tuple(getattr(module, "KINDS", (ALL_REDUCE, *scattered, *rooted)))


def bus_factor(kind: str, ranks: int) -> float:
    """busbw over algbw, by nccl-tests' convention (doc/PERFORMANCE.md there): what compares with the rate of a link.

    algbw is bytes of the whole message, of all pieces of it, over seconds. Of these bytes each link carries at least:
    2(N-1)/N in an all-reduce; (N-1)/N in a reduce-scatter, an all-gather and an all-to-all, in which a rank keeps a
    piece; all in a broadcast and a reduce.
    """
    if kind in (BROADCAST, REDUCE):
        return 1.0
    return (2 if kind == ALL_REDUCE else 1) * (ranks - 1) / ranks


def server(name: str, message: int, ranks: int) -> int:
    """The root of message number `message` of an iteration."""
    server_of = None if name == NATIVE else getattr(get(name), "server", None)
    return 0 if server_of is None else int(server_of(message, ranks))


class Phase(NamedTuple):
    """Part of the time of a message in which each rank sends and receives alike.

    `parts`: what goes out of each rank (row 0) and into it (row 1), as a part of the largest of these.  # (2, ranks)
    """

    share: float
    parts: np.ndarray


@lru_cache(maxsize=256)
def phases(name: str, shape: Shape, root: int = 0, kind: str = ALL_REDUCE) -> tuple[Phase, ...]:
    """How a message takes each rank's way out and in, phase after phase, if all ways are equally fast.

    A single phase that takes all of every way, if all ranks send and receive as much all the time.
    """
    ranks = prod(shape)
    merged: list[tuple[float, np.ndarray]] = []
    for step in rounds(name, shape, root, kind):
        carried = np.array([np.bincount(end, step.pieces, minlength=ranks) for end in (step.source, step.destination)])
        longest = float(carried.max())
        parts = carried / longest
        if merged and np.array_equal(merged[-1][1], parts):
            longest += merged.pop()[0]
        merged.append((longest, parts))
    whole = sum(longest for longest, _ in merged)
    return tuple(Phase(longest / whole, parts) for longest, parts in merged)


def pieces(name: str, shape: Shape, chunks: int | None = None) -> int:
    """Into how many pieces a collective cuts a message; `chunks`: as of `rounds`."""
    module = get(name)
    return int(module.pieces(shape) if chunks is None else module.pieces(shape, chunks=_chunks(name, chunks)))


def rounds(
    name: str, shape: Shape, root: int = 0, kind: str = ALL_REDUCE, chunks: int | None = None
) -> Iterator[Round]:
    """The rounds of a collective; a single rank sends nothing.

    `kind`: of the whole collective, or of the half of an all-reduce that is a reduce-scatter or reduce, or an
    all-gather or broadcast. `chunks`: into how many a pipeline cuts the message; None: the collective's own number.
    Raises InputError for levels that it can't serve, and for chunks if it has none.
    """
    module = get(name)
    refuse(name, shape, kind)
    cut = {} if chunks is None else {"chunks": _chunks(name, chunks)}
    if prod(shape) == 1:
        return iter(())
    every: Iterator[Round] = module.rounds(shape, root, **cut)
    return every if kind in (ALL_REDUCE, ALL_TO_ALL) else (step for step in every if step.adds == (kind in SUMS))


def _chunks(name: str, chunks: int) -> int:
    if not getattr(get(name), "CHUNKED", False):
        able = [other for other in described() if getattr(get(other), "CHUNKED", False)]
        raise InputError(f"collective {name!r} is no pipeline, whose chunks could be counted: {', '.join(able)} are")
    if chunks < 1:
        raise InputError(f"collective {name!r}: {chunks} chunks: at least 1")
    return chunks

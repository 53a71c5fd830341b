"""Flow-level cost of a collective on a topology: a round lasts as long as its most loaded link is busy.

A round takes alpha, plus the largest sum of latencies of a route in it, plus the bytes of its slowest link over that
link's bandwidth (all ranks in step), plus gamma times the bytes that the busiest rank adds. Pieces are equally long, so
that all of it is a line in the message: T(m) = a + b m. With alpha 0 and links of bandwidth 1, b is the gradient
synchronisation time in units of T_F (BML paper, Section 3.3).

If rounds need not be in step, and for whole plans, transfers are simulated one by one (`engine/simulate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gradsync import collectives
from gradsync.collectives import ALL_REDUCE, Round, Shape
from gradsync.costs import Linear
from gradsync.topologies import NO_LINK, Speeds, Topology

CHUNK = 1 << 19  # transfers whose routes are in memory at a time

Watch = Callable[[int, int], None]
"""It gets, from time to time, how many rounds and transfers have been timed."""


@dataclass(frozen=True)
class FlowCost:
    """A collective on a topology. Loads are in bytes per byte of the message."""

    line: Linear
    rounds: int
    transfers: int
    shape: Shape
    sent: float
    """What the rank that sends most sends over all rounds; what it passes on for others is not counted."""
    link_load: float
    """What the link that carries most carries over all rounds."""
    link_kind: str
    """The kind of that link."""

    def seconds(self, size: float) -> float:
        """T(m) of a message of `size` bytes."""
        return float(self.line.seconds(size))


def cost(
    name: str,
    topology: Topology,
    speeds: Speeds,
    ranks: int | None = None,
    *,
    root: int = 0,
    kind: str = ALL_REDUCE,
    chunks: int | None = None,
    add_seconds_per_byte: float = 0.0,
    flows: Mapping[str, float] | None = None,
    watch: Watch | None = None,
) -> FlowCost:
    """Cost of collective `name`, of a kind that it has, between the first `ranks` hosts (None: all) of a topology.

    `chunks`: into how many a pipeline cuts the message; None: the collective's own number. `flows`: by kind of link,
    the most bytes per second that one transfer gets of such a link (a single connection often does not fill it).

    Raises InputError if the topology can't carry it or `speeds` lack a kind of its links.
    """
    ranks = topology.hosts if ranks is None else ranks
    shape = collectives.shape_on(name, topology, ranks, kind)
    bandwidth, latency = speeds.of(topology)
    pieces = collectives.pieces(name, shape, chunks)
    a = b = 0.0
    rounds = transfers = 0
    sent, load = np.zeros(ranks), np.zeros(len(bandwidth))  # pieces, of all rounds
    flow = _flow_rates(topology, flows)
    for step, times, adding in _alike(_watched(collectives.rounds(name, shape, root, kind, chunks), watch)):
        traffic = _traffic(step, topology, latency, flow)
        a += times * (speeds.alpha + traffic.latency)
        b += times * max(float((traffic.load / bandwidth).max(initial=0.0)), traffic.flow) / pieces
        if adding and add_seconds_per_byte:
            added = np.bincount(step.destination, step.pieces).max(initial=0.0)
            b += adding * add_seconds_per_byte * float(added) / pieces
        load += times * traffic.load
        sent += times * np.bincount(step.source, step.pieces, minlength=ranks)
        rounds, transfers = rounds + times, transfers + times * len(step.source)
    most = int(load.argmax())
    return FlowCost(
        Linear(a, b, f"{name} of {ranks} on {topology.name}, flow level"),
        rounds,
        transfers,
        shape,
        sent=float(sent.max()) / pieces,
        link_load=float(load[most]) / pieces,
        link_kind=topology.kinds[int(topology.link_kind()[most])],
    )


def round_seconds(step: Round, piece_bytes: float, topology: Topology, speeds: Speeds) -> float:
    """What one round takes if its pieces have so many bytes, without what ranks add.

    Raises InputError if `speeds` lack a kind of the topology's links.
    """
    bandwidth, latency = speeds.of(topology)
    traffic = _traffic(step, topology, latency)
    return speeds.alpha + traffic.latency + piece_bytes * float((traffic.load / bandwidth).max(initial=0.0))


def _watched(rounds: Iterable[Round], watch: Watch | None) -> Iterator[Round]:
    """The same rounds; `watch` gets each before it is timed, also one that is timed with those it is like."""
    count = transfers = 0
    for step in rounds:
        count, transfers = count + 1, transfers + len(step.source)
        if watch:
            watch(count, transfers)
        yield step


def _alike(rounds: Iterable[Round]) -> Iterator[tuple[Round, int, int]]:
    """(round, how many like it follow one another, how many of them add).

    Rounds are alike if their arrays are the very same ones, but for the places of the pieces: as in a ring.
    """
    like: Round | None = None
    times = adding = 0
    for step in rounds:
        if like is None or not _same_arrays(step, like):
            if like is not None:
                yield like, times, adding
            like, times, adding = step, 0, 0
        times, adding = times + 1, adding + step.adds
    if like is not None:
        yield like, times, adding


def _same_arrays(one: Round, other: Round) -> bool:
    pairs = zip(one._replace(first=other.first, adds=other.adds, into=other.into), other, strict=True)
    return all(mine is theirs for mine, theirs in pairs)


class _Traffic(NamedTuple):
    load: np.ndarray  # pieces over each link (links,)
    latency: float  # seconds, of the slowest route
    flow: float  # the largest quotient of a transfer's pieces and what one transfer gets of a link


def _flow_rates(topology: Topology, flows: Mapping[str, float] | None) -> np.ndarray | None:
    """Bytes per second that one transfer gets of each link at most; None if it gets all of any.  # (links,)"""
    if not flows:
        return None
    return np.array([flows.get(kind, np.inf) for kind in topology.kinds])[topology.link_kind()]


def _traffic(step: Round, topology: Topology, latency: np.ndarray, flow: np.ndarray | None = None) -> _Traffic:
    load, slowest, longest = np.zeros(len(latency)), 0.0, 0.0
    for start in range(0, len(step.source), CHUNK):
        part = slice(start, start + CHUNK)
        pieces = step.pieces[part]
        late: np.ndarray | float = 0.0
        for hop in topology.route(step.source[part], step.destination[part], step.rail[part]).T:
            used = slice(None) if hop.min() > NO_LINK else hop != NO_LINK
            load += np.bincount(hop[used], pieces[used], minlength=len(load))
            if latency.any():
                late = late + np.where(hop == NO_LINK, 0.0, latency[hop])
            if flow is not None:
                longest = max(longest, float((pieces[used] / flow[hop[used]]).max(initial=0.0)))
        slowest = max(slowest, float(np.max(late)))
    return _Traffic(load, slowest, longest)

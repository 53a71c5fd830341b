"""What the clocks of other nodes are off, so that spans of several ranks can be laid side by side.

Ranks of one node share the kernel's monotonic clock. Of each other node one rank plays ping-pong with rank 0: an answer
was given in the middle of its round trip, give or take half of it (Cristian, "Probabilistic clock synchronization",
Distributed Computing 3, 1989); the shortest of several trips knows best.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

from gradsync.runtime.hosts import nodes

TRIPS = 20


class Offset(NamedTuple):
    """Seconds to add to a rank's clock to have rank 0's, right to `within` seconds."""

    seconds: float
    within: float


def offsets(now: Callable[[], float] = time.perf_counter, places: list[str] | None = None) -> list[Offset]:
    """Of each rank; collective over all ranks. `places`: the node of each rank (None: asked for)."""
    places = nodes() if places is None else places
    rank, found = dist.get_rank(), {places[0]: Offset(0.0, 0.0)}
    for other, place in enumerate(places):
        if place in found:
            continue
        if rank == 0:
            found[place] = _asked(other, now)
        elif rank == other:
            _answer(now)
        found.setdefault(place, Offset(0.0, 0.0))
    told = [[found[place] for place in places]]
    dist.broadcast_object_list(told, 0)
    return told[0]


def _asked(other: int, now: Callable[[], float]) -> Offset:
    best = Offset(0.0, float("inf"))
    theirs = torch.zeros(1, dtype=torch.float64)
    for _ in range(TRIPS):
        start = now()
        dist.send(theirs, other)
        dist.recv(theirs, other)
        end = now()
        if (end - start) / 2 < best.within:
            best = Offset((start + end) / 2 - float(theirs), (end - start) / 2)
    return best


def _answer(now: Callable[[], float]) -> None:
    mine = torch.zeros(1, dtype=torch.float64)
    for _ in range(TRIPS):
        dist.recv(mine, 0)
        mine[0] = now()
        dist.send(mine, 0)

"""Measures how far the clocks of other nodes are off, so that spans of several ranks can be compared.

Ranks of one node share the kernel's monotonic clock. Of each other node one rank plays ping-pong with rank 0: an answer
was given in the middle of its round trip, give or take half of it (Cristian, "Probabilistic clock synchronization",
Distributed Computing 3, 1989); the shortest of several trips is the most exact.
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
    """The seconds to add to a rank's clock to get rank 0's, right to `within` seconds."""

    seconds: float
    within: float


def offsets(now: Callable[[], float] = time.perf_counter, places: list[str] | None = None) -> list[Offset]:
    """The offset of each rank; collective over all ranks. `places`: the node of each rank (None: collect them)."""
    places = nodes() if places is None else places
    rank, by_node = dist.get_rank(), {places[0]: Offset(0.0, 0.0)}
    for other, place in enumerate(places):
        if place in by_node:
            continue
        if rank == 0:
            by_node[place] = _measure_offset(other, now)
        elif rank == other:
            _answer_pings(now)
        by_node.setdefault(place, Offset(0.0, 0.0))
    gathered = [[by_node[place] for place in places]]
    dist.broadcast_object_list(gathered, 0)
    return gathered[0]


def _measure_offset(other: int, now: Callable[[], float]) -> Offset:
    best = Offset(0.0, float("inf"))
    clock = torch.zeros(1, dtype=torch.float64)
    for _ in range(TRIPS):
        start = now()
        dist.send(clock, other)
        dist.recv(clock, other)
        end = now()
        if (end - start) / 2 < best.within:
            best = Offset((start + end) / 2 - float(clock), (end - start) / 2)
    return best


def _answer_pings(now: Callable[[], float]) -> None:
    clock = torch.zeros(1, dtype=torch.float64)
    for _ in range(TRIPS):
        dist.recv(clock, 0)
        clock[0] = now()
        dist.send(clock, 0)

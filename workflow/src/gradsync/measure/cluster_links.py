"""All-reduce times inside a node, between nodes and over everything, in one world of ranks.

Groups of ranks (*teams*) all-reduce among themselves while the other ranks wait on their hosts. Inside nodes, all nodes
are measured at once: their links have nothing in common, and the slowest one counts, as in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist

from gradsync.clusters import AllReduce, Point
from gradsync.costs import line
from gradsync.measure import allreduce
from gradsync.measure.cluster_nodes import Map
from gradsync.runtime.timing import WARM_UP, all_reduce_seconds
from gradsync.statistics.intervals import median_interval, repeats_needed

SWEEPS = repeats_needed()  # over all sizes, each with groups of its own
REPEATS = 24  # most of a size in a sweep
SECONDS_A_SIZE = 0.1  # in a sweep
PROBES = (64 * 1024, 4 * 1024 * 1024)  # bytes, for a first estimate of how long it takes
DIGITS = 6  # of what is written; far more than repeats agree on

Times = dict[int, list[float]]  # bytes -> seconds of each repeat


class Layout(NamedTuple):
    """Which ranks all-reduce together; `kind` is one of inside, between, everything."""

    kind: str
    nodes: int
    ranks_per_node: int
    teams: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        """In file names and progress."""
        return f"{self.kind}-{self.nodes}x{self.ranks_per_node}"


def powers(most: int) -> list[int]:
    """2, 4, 8, .. and `most`; nothing below 2."""
    return sorted({*(2**i for i in range(1, most.bit_length()) if 2**i <= most), most}) if most > 1 else []


def layouts(where: Map, inside: Sequence[int] | None = None) -> list[Layout]:
    """What there is to measure; `inside`: numbers of ranks inside a node (None: powers of 2)."""
    each, count = where.ranks_per_node, len(where.ranks)
    numbers = powers(each) if inside is None else sorted({number for number in inside if 2 <= number <= each})
    found = [Layout("inside", 1, n, tuple(tuple(ranks[:n]) for ranks in where.ranks)) for n in numbers]
    for n in powers(count):
        found.append(Layout("between", n, 1, (tuple(ranks[0] for ranks in where.ranks[:n]),)))
    if each > 1:
        found += [Layout("everything", n, each, (tuple(chain(*where.ranks[:n])),)) for n in powers(count)]
    return found


def reasons(where: Map) -> dict[str, str]:
    """Why a kind of link has no times, by kind; empty where all have some."""
    found = {}
    if where.ranks_per_node < 2:
        found["inside"] = "there was one rank on each node"
        found["everything"] = "there was one rank on each node: what is between nodes is everything"
    if len(where.ranks) < 2:
        alone = f"all ranks were on one node ({where.hosts[0]})"
        found |= {"between": alone, "everything": alone}
    return found


def expected_seconds(smallest: int, largest: int, device: Any) -> float:
    """How long `measure` takes, by a few messages among all ranks: time for each size, and at least four messages.

    Collective over all ranks; the same on all of them is not promised.
    """
    if dist.get_world_size() < 2:
        return 0.0
    found = all_reduce_seconds(list(PROBES), WARM_UP, 0.0, device=device)
    a, b = line.least_relative_squares(list(found), [np.median(times) for times in found.values()])
    each = [(WARM_UP + 1) * (a + b * size) for size in allreduce.sizes(smallest, largest)]
    return SWEEPS * sum(max(SECONDS_A_SIZE, seconds) for seconds in each)


def measure(layout: Layout, smallest: int, largest: int, device: Any) -> AllReduce | None:
    """Times of messages from `smallest` to `largest` bytes; None on other ranks than 0. Collective over all ranks."""
    sizes = allreduce.sizes(smallest, largest)
    sweeps = [
        all_reduce_seconds(sizes, REPEATS, SECONDS_A_SIZE, device=device, teams=layout.teams) for _ in range(SWEEPS)
    ]
    mine = sweeps if dist.get_rank() in {team[0] for team in layout.teams} else None
    every: list[list[Times] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(every, mine)
    return None if dist.get_rank() else of([told for told in every if told], layout, device)


def of(teams: Sequence[Sequence[Times]], layout: Layout, device: Any) -> AllReduce:
    """What the sweeps of each team say: the times of the slowest one, by the geometric mean over sizes."""
    sizes = sorted(teams[0][0])
    # (teams, sweeps, sizes)
    means = np.array([[[np.mean(times[size]) for size in sizes] for times in sweeps] for sweeps in teams])
    level = np.log(means.mean(axis=1)).mean(axis=1)
    slowest = int(np.argmax(level))
    points = []
    for column, size in enumerate(sizes):
        low, middle, high = median_interval([np.median(times[size]) for times in teams[slowest]])
        mean, repeats = float(means[slowest, :, column].mean()), sum(len(times[size]) for times in teams[slowest])
        points.append(Point(size, rounded(middle), rounded(low), rounded(high), rounded(mean), repeats))
    fit = line.through(sizes, means[slowest])
    return AllReduce(
        nodes=layout.nodes,
        ranks_per_node=layout.ranks_per_node,
        backend=device.backend,
        device=device.kind,
        line=line.Line(**{key: rounded(value) for key, value in fit.model_dump().items()}),
        slowest_over_fastest=rounded(float(np.exp(level.max() - level.min()))) if len(teams) > 1 else None,
        points=tuple(points),
    )


def rounded(value: Any) -> Any:
    """Floats to so many digits, also inside tuples; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(rounded(inner) for inner in value)
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value

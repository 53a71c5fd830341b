"""All-reduce times inside a node, between nodes and over everything, in one world of ranks.

Groups of ranks (*teams*) all-reduce among themselves while the other ranks wait on their hosts. Inside nodes, all nodes
are measured at the same time: their links have nothing in common, and the slowest one counts, as in training.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import torch.distributed as dist

from gradsync.clusters import AllReduce, ClusterPoint
from gradsync.costs import line
from gradsync.measure import allreduce
from gradsync.measure.cluster_nodes import Placement
from gradsync.runtime.timing import WARM_UP, all_reduce_seconds
from gradsync.statistics.intervals import median_interval, repeats_needed

SWEEPS = repeats_needed()  # over all sizes, each with groups of its own
REPEATS = 24  # per size and sweep, at most
SECONDS_PER_SIZE = 0.1  # in a sweep
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


def layouts(placement: Placement, inside: Sequence[int] | None = None) -> list[Layout]:
    """What there is to measure; `inside`: numbers of ranks inside a node (None: powers of 2)."""
    most, nodes = placement.ranks_per_node, len(placement.ranks)
    numbers = powers(most) if inside is None else sorted({number for number in inside if 2 <= number <= most})
    every = [Layout("inside", 1, n, tuple(tuple(ranks[:n]) for ranks in placement.ranks)) for n in numbers]
    for n in powers(nodes):
        every.append(Layout("between", n, 1, (tuple(ranks[0] for ranks in placement.ranks[:n]),)))
    if most > 1:
        every += [Layout("everything", n, most, (tuple(chain(*placement.ranks[:n])),)) for n in powers(nodes)]
    return every


def reasons(placement: Placement) -> dict[str, str]:
    """Why a kind of link has no times, by kind; empty if all have some."""
    by_kind = {}
    if placement.ranks_per_node < 2:
        by_kind["inside"] = "there was one rank on each node"
        by_kind["everything"] = "there was one rank on each node: what is between nodes is everything"
    if len(placement.ranks) < 2:
        one_node = f"all ranks were on one node ({placement.hosts[0]})"
        by_kind |= {"between": one_node, "everything": one_node}
    return by_kind


def expected_seconds(smallest: int, largest: int, device: Any) -> float:
    """How long `measure` takes, by a few messages among all ranks: time for each size, and at least four messages.

    Collective over all ranks, which may get different answers.
    """
    if dist.get_world_size() < 2:
        return 0.0
    probed = all_reduce_seconds(list(PROBES), WARM_UP, 0.0, device=device)
    a, b = line.least_relative_squares(list(probed), [np.median(times) for times in probed.values()])
    least = [(WARM_UP + 1) * (a + b * size) for size in allreduce.sizes(smallest, largest)]
    return SWEEPS * sum(max(SECONDS_PER_SIZE, seconds) for seconds in least)


def measure(layout: Layout, smallest: int, largest: int, device: Any) -> AllReduce | None:
    """Times of messages from `smallest` to `largest` bytes; None on other ranks than 0. Collective over all ranks."""
    sizes = allreduce.sizes(smallest, largest)
    sweeps = [
        all_reduce_seconds(sizes, REPEATS, SECONDS_PER_SIZE, device=device, teams=layout.teams) for _ in range(SWEEPS)
    ]
    mine = sweeps if dist.get_rank() in {team[0] for team in layout.teams} else None
    of_ranks: list[list[Times] | None] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, mine)
    return None if dist.get_rank() else slowest([times for times in of_ranks if times], layout, device)


def slowest(teams: Sequence[Sequence[Times]], layout: Layout, device: Any) -> AllReduce:
    """Of the sweeps of each team, the times of the slowest team, by the geometric mean over sizes."""
    sizes = sorted(teams[0][0])
    # (teams, sweeps, sizes)
    means = np.array([[[np.mean(times[size]) for size in sizes] for times in sweeps] for sweeps in teams])
    level = np.log(means.mean(axis=1)).mean(axis=1)
    team = int(np.argmax(level))
    points = []
    for column, size in enumerate(sizes):
        low, middle, high = median_interval([np.median(times[size]) for times in teams[team]])
        mean, repeats = float(means[team, :, column].mean()), sum(len(times[size]) for times in teams[team])
        points.append(ClusterPoint(size, rounded(middle), rounded(low), rounded(high), rounded(mean), repeats))
    fit = line.through(sizes, means[team])
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

"""What a plan takes of a measured cluster: the cost of its messages, and the layer times of its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gradsync.clusters import AllReduce, Profile
from gradsync.costs import fitted
from gradsync.errors import InputError
from gradsync.plan.workload import Workload


def all_reduce(profile: Profile, path: str | Path, ranks: int, nodes: int | None = None) -> AllReduce | None:
    """The all-reduces measured among `ranks` ranks, on `nodes` nodes (None: on the fewest); None where there are none.

    Raises InputError where there are some, but not on so many nodes.
    """
    found = [one for one in profile.allreduce.all() if one.ranks == ranks]
    chosen = [one for one in found if nodes in (None, one.nodes)]
    if found and not chosen:
        known = ", ".join(str(one.nodes) for one in found)
        raise InputError(
            f"cluster {path}: all-reduces of {ranks} ranks were measured on {known} node(s), not on {nodes}"
        )
    return chosen[0] if chosen else None


def cost(
    profile: Profile, path: str | Path, ranks: int, *, nodes: int | None = None, scale: bool = False
) -> tuple[fitted.Fitted, int, list[str]]:
    """(cost of an all-reduce of `ranks` ranks, ranks on each node, what whoever plans with it must know).

    Where that number was not measured, `scale` takes the largest that was and scales it as a ring; else InputError
    names what was measured.
    """
    every = profile.allreduce.all()
    one = all_reduce(profile, path, ranks, nodes)
    source = f"cluster {profile.name}"
    if one is not None:
        others = ", ".join(str(other.nodes) for other in every if other.ranks == ranks and other is not one)
        told = f"all-reduce times of {ranks} ranks: {one.place}; measured on {others} node(s) too, see --nodes"
        return one.cost(f"{source}: {one.place}"), one.ranks_per_node, [told] if others and not nodes else []
    known = ", ".join(f"{each.ranks} ({each.nodes} x {each.ranks_per_node})" for each in every) or "none"
    if not scale or not every or ranks < 2:
        raise InputError(
            f"cluster {path}: has no all-reduce times of {ranks} ranks; measured ranks (nodes x ranks a node): {known}"
            ": plan for one of these, measure that number, or give --scale"
        )
    return scaled(max(every, key=lambda each: each.ranks), ranks, source)


def scaled(one: AllReduce, ranks: int, source: str) -> tuple[fitted.Fitted, int, list[str]]:
    """As `cost`, from measured all-reduces of another number of ranks.

    On a ring start-up grows with 2 (N - 1) and the rest with 2 (N - 1) / N (Table II of the MG-WFBP paper); the
    start-up of each point is what its fit takes for it.
    """
    measured = one.cost(source)
    longer, more = (ranks - 1) / (one.ranks - 1), (ranks - 1) / ranks * one.ranks / (one.ranks - 1)
    m = np.array([point.bytes for point in one.points], float)
    t = np.array([point.mean_seconds for point in one.points])
    startup = np.minimum(measured.startup_seconds(m), t)
    note = (
        f"all-reduce times of {ranks} ranks were not measured: those of {one.place} scaled as a ring, start-up times "
        f"{longer:.3g}, the rest times {more:.3g}"
    )
    found = fitted.fit(m, startup * longer + (t - startup) * more, source=f"{source}: {note}")
    return found, min(one.ranks_per_node, ranks), [note]


def workload(profile: Profile, path: str | Path, model: str, ranks_per_node: int) -> tuple[Workload, list[str]]:
    """(workload of a model of the profile at `path`, what whoever plans with it must know).

    Taken is the one measured with `ranks_per_node` ranks at once on a node, else the nearest number, with a note where
    ranks share processors. Raises InputError where there is none, or its file disagrees with the totals.
    """
    found = [one for one in profile.workloads if one.model == model]
    if not found:
        known = ", ".join(sorted({one.model for one in profile.workloads})) or "none"
        raise InputError(f"cluster {path}: no layer times of {model!r} (it has: {known}), and no such file either")
    one = min(found, key=lambda each: abs(each.ranks_per_node - ranks_per_node))
    read = Workload.load(Path(path).parent / one.file)
    if (len(read.layers), read.bytes) != (one.tensors, one.bytes) or not np.isclose(
        read.backward_seconds, one.backward_seconds, rtol=1e-4, atol=0
    ):
        raise InputError(
            f"cluster {path}: workloads: {one.file} does not have the tensors, bytes and backward_seconds stated for "
            f"{model}: measure it again"
        )
    notes = []
    if one.ranks_per_node != ranks_per_node and one.device == "cpu":
        notes.append(
            f"layer times of {model} were measured with {one.ranks_per_node} rank(s) at once on a node, the plan has "
            f"{ranks_per_node}: ranks that share processors compute at another speed"
        )
    return read, notes

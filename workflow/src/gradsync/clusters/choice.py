"""What a plan takes from a measured cluster: the cost of its messages, and the layer times of its model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gradsync.clusters import AllReduce, Profile
from gradsync.costs import fitted
from gradsync.errors import InputError
from gradsync.plan.workload import Workload


def all_reduce(profile: Profile, path: str | Path, ranks: int, nodes: int | None = None) -> AllReduce | None:
    """The all-reduces measured among `ranks` ranks, on `nodes` nodes (None: on the fewest); None if there are none.

    Raises InputError if there are some, but not on so many nodes.
    """
    of_ranks = [each for each in profile.allreduce.all() if each.ranks == ranks]
    chosen = [each for each in of_ranks if nodes in (None, each.nodes)]
    if of_ranks and not chosen:
        known = ", ".join(str(each.nodes) for each in of_ranks)
        raise InputError(
            f"cluster {path}: all-reduces of {ranks} ranks were measured on {known} node(s), not on {nodes}"
        )
    return chosen[0] if chosen else None


def cost(
    profile: Profile, path: str | Path, ranks: int, *, nodes: int | None = None, scale: bool = False
) -> tuple[fitted.Fitted, int, list[str]]:
    """(cost of an all-reduce of `ranks` ranks, ranks on each node, notes for whoever plans with it).

    If that number was not measured, `scale` takes the largest that was and scales it as a ring; else InputError names
    what was measured.
    """
    measured = profile.allreduce.all()
    chosen = all_reduce(profile, path, ranks, nodes)
    source = f"cluster {profile.name}"
    if chosen is not None:
        others = ", ".join(str(each.nodes) for each in measured if each.ranks == ranks and each is not chosen)
        note = f"all-reduce times of {ranks} ranks: {chosen.place}; measured on {others} node(s) too, see --nodes"
        fit = chosen.cost(f"{source}: {chosen.place}")
        return fit, chosen.ranks_per_node, [note] if others and not nodes else []
    known = ", ".join(f"{each.ranks} ({each.nodes} x {each.ranks_per_node})" for each in measured) or "none"
    if not scale or not measured or ranks < 2:
        raise InputError(
            f"cluster {path}: has no all-reduce times of {ranks} ranks; measured ranks (nodes x ranks a node): {known}"
            ": plan for one of these, measure that number, or give --scale"
        )
    return scaled(max(measured, key=lambda each: each.ranks), ranks, source)


def scaled(measured: AllReduce, ranks: int, source: str) -> tuple[fitted.Fitted, int, list[str]]:
    """As `cost`, from measured all-reduces of another number of ranks.

    On a ring start-up grows with 2 (N - 1) and the rest with 2 (N - 1) / N (Table II of the MG-WFBP paper); the
    start-up of each point is that of the fit.
    """
    fit = measured.cost(source)
    longer, more = (ranks - 1) / (measured.ranks - 1), (ranks - 1) / ranks * measured.ranks / (measured.ranks - 1)
    m = np.array([point.bytes for point in measured.points], float)
    t = np.array([point.mean_seconds for point in measured.points])
    startup = np.minimum(fit.startup_seconds(m), t)
    note = (
        f"all-reduce times of {ranks} ranks were not measured: those of {measured.place} scaled as a ring, start-up "
        f"times {longer:.3g}, the rest times {more:.3g}"
    )
    scaled_cost = fitted.fit(m, startup * longer + (t - startup) * more, source=f"{source}: {note}")
    return scaled_cost, min(measured.ranks_per_node, ranks), [note]


def workload(profile: Profile, path: str | Path, model: str, ranks_per_node: int) -> tuple[Workload, list[str]]:
    """(workload of a model of the profile at `path`, notes for whoever plans with it).

    It is the one measured with `ranks_per_node` ranks at a time on a node, else with the nearest number, and a note
    says so if ranks share processors. Raises InputError if there is none, or its file disagrees with the totals.
    """
    of_model = [each for each in profile.workloads if each.model == model]
    if not of_model:
        known = ", ".join(sorted({each.model for each in profile.workloads})) or "none"
        raise InputError(f"cluster {path}: no layer times of {model!r} (it has: {known}), and no such file either")
    timed = min(of_model, key=lambda each: abs(each.ranks_per_node - ranks_per_node))
    loaded = Workload.load(Path(path).parent / timed.file)
    if (len(loaded.layers), loaded.bytes) != (timed.tensors, timed.bytes) or not np.isclose(
        loaded.backward_seconds, timed.backward_seconds, rtol=1e-4, atol=0
    ):
        raise InputError(
            f"cluster {path}: workloads: {timed.file} does not have the tensors, bytes and backward_seconds stated for "
            f"{model}: measure it again"
        )
    notes = []
    if timed.ranks_per_node != ranks_per_node and timed.device == "cpu":
        notes.append(
            f"layer times of {model} were measured with {timed.ranks_per_node} rank(s) at once on a node, the plan has "
            f"{ranks_per_node}: ranks that share processors compute at another speed"
        )
    return loaded, notes

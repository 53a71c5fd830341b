"""Fig. 6 to 8 simulated: 2, 4 and 8 nodes of the paper's testbed, over a band of all-reduce costs.

Differs from the paper in what it does not publish. GoogLeNet's layer times are those of the authors' log, t_f is what
one node's published throughput leaves. ResNet-50's layer shares are measured on this machine and scaled to the
published throughput of one node; t_f is a band. The all-reduce is the log of a benchmark, that of the layers in
training, or the paper's start-up at line rate: these are three different networks, and every one of them is a point of
the band.

TensorFlow's parameter servers are simulated transfer by transfer, on one switch whose start-up and bandwidth are those
with which a ring would have the all-reduce of that point. There is a server per node; whole tensors go to the servers
in turn, each once it is ready, however many are on their way; a sum goes back immediately. TensorFlow itself is left
out (its copies, its remote calls, and that it reads parameters only when the next iteration begins), which makes the
time optimistic.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gradsync.collectives import NATIVE
from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, MessageCost, alpha_beta
from gradsync.costs.fitted import Fitted, fit
from gradsync.engine.bounds import Links
from gradsync.errors import InputError
from gradsync.measure import carried
from gradsync.papers.mgwfbp import testbed
from gradsync.papers.mgwfbp.settings import paper_settings
from gradsync.papers.simulated import timed
from gradsync.plan.workload import Workload
from gradsync.rounds.lowering import lowered

BENCHMARK, IN_TRAINING, LINE_RATE = "all-reduce=benchmark log", "all-reduce=layer log", "all-reduce=line rate"
CENTRES = (IN_TRAINING, f"t_f=0.5 t_b, {IN_TRAINING}")  # the point that is drawn as a line: each model has one of them
PARAMETER_SERVER = "tf_ps"
LARGEST = 8  # nodes
MEBIBYTE = 2.0**20


class BandPoint(NamedTuple):
    """One point of the band: a workload and a cost for each number of nodes."""

    label: str
    workload: Workload
    costs: dict[int, MessageCost]


def compared(settings: Settings) -> list[schemes.Scheme]:
    """The schemes compared on the testbed, one switch: schedules of its all-reduce, and TensorFlow's parameter servers.

    The schedules send one message at a time: the paper has nothing about several.
    """
    known = schemes.load(settings.schemes).values()
    natives = [scheme for scheme in known if scheme.sums_one_at_a_time]
    return [*natives, *(scheme for scheme in known if scheme.name == PARAMETER_SERVER)]


def rows(model: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    """Every scheme on every number of nodes at every point of the band."""
    known, links = compared(settings), testbed.links(settings)
    for point in _points(model, settings, results):
        for n in testbed.NODES:
            for scheme in known:
                yield {
                    "rung": "simulated",
                    "model": model,
                    "nodes": n,
                    "scheme": scheme.name,
                    "assumption": point.label,
                    **_timed(scheme, point.workload, point.costs[n], n, links),
                }


def _timed(scheme: schemes.Scheme, workload: Workload, cost: MessageCost, n: int, *links: Links) -> dict[str, Any]:
    by_transfers = scheme.collective != NATIVE
    plan = schemes.plan(_unlimited(scheme, workload) if by_transfers else scheme, workload, cost, n)
    network = alpha_beta.around(cost, n)
    how = {"add_seconds_per_byte": 0.0} if by_transfers else {}  # the paper's slope includes summing
    iteration = timed(lowered(plan) if by_transfers else plan, workload, network, *links, **how)
    seconds, computation_seconds = iteration.iteration_seconds, workload.forward_seconds + workload.backward_seconds
    note = ""
    longest = max(plan.bytes_of(op.writes) for op in plan.communications())
    if by_transfers:
        note = f"transfers of {network.of('send').describe()}"
    elif isinstance(cost, Fitted) and cost.extrapolates(longest):
        note = (
            f"longest message {longest / MEBIBYTE:.1f} MiB extrapolated from at most {cost.largest / MEBIBYTE:.1f} MiB"
        )
    return {
        **iteration._asdict(),
        "computation_seconds": computation_seconds,
        "speedup": n * computation_seconds / seconds,
        "efficiency": computation_seconds / seconds,
        "note": "; ".join(part for part in (note, iteration.note) if part),
    }


def _unlimited(scheme: schemes.Scheme, workload: Workload) -> schemes.Scheme:
    """The scheme with a lane for each tensor: TensorFlow neither orders its transfers nor counts them."""
    return scheme.model_copy(update={"options": {**scheme.options, "lanes": len(workload.layers)}})


def _points(model: str, settings: Settings, results: Path) -> Iterator[BandPoint]:
    """The points of a model's band."""
    for prefix, workload in workloads(model, settings, results):
        for label, costs in _costs(settings):
            yield BandPoint(prefix + label, workload, costs)


def workloads(model: str, settings: Settings, results: Path) -> Iterator[tuple[str, Workload]]:
    """The label and the workload of a node at each point of the band."""
    alone = testbed.throughput(settings, model).alone_seconds
    note = f"t_f + t_b = {alone:.4g} s, the published throughput of one node"
    if model == "googlenet":
        logged = carried.layer_log(forward_share=1.0)
        t_b = logged.backward_seconds
        if t_b > alone:
            raise InputError(
                f"testbed {paper_settings(settings).testbed}: drawn_throughput.{model}.one_node: {alone:.4g} s per "
                f"iteration are less than the {t_b:.4g} s of the logged backward pass: correct it"
            )
        yield "", logged.scaled(forward_seconds=alone - t_b, backward_seconds=t_b, update_seconds=0.0, note=note)
        return
    measured = Workload.load(results / "profile" / model / "workload.json")
    for share in paper_settings(settings).forward_shares:
        yield (
            f"t_f={share:g} t_b, ",
            measured.scaled(
                forward_seconds=alone * share / (1 + share),
                backward_seconds=alone / (1 + share),
                update_seconds=0.0,  # the published throughput includes the update
                note=note,
            ),
        )


def _costs(settings: Settings) -> Iterator[tuple[str, dict[int, MessageCost]]]:
    """The label and the costs of three networks."""
    two = fit(*carried.allreduces(2), source="allreduce2.log")
    eight = fit(*carried.allreduces(8), source="allreduce8.log")
    yield BENCHMARK, {2: two, 4: as_ring(eight, LARGEST, 4), 8: eight}
    yield IN_TRAINING, {n: in_training(n) for n in testbed.NODES}
    startups = testbed.startups(settings)
    beta = 8 / testbed.cluster(settings)["link_bits_per_second"]["value"]
    yield LINE_RATE, {n: Linear(startups[n], 2 * (n - 1) / n * beta, f"ring of {n} at line rate") for n in startups}


def in_training(n: int) -> Fitted:
    """The all-reduces of the layer log, on `n` nodes."""
    points = carried.layer_allreduces()
    return as_ring(fit(*points, source="all-reduces of tmp8comm.log"), LARGEST, n)


def as_ring(cost: Fitted, measured: int, n: int) -> Fitted:
    """A cost measured on `measured` nodes, on `n`: a = 2(N-1) alpha and b = 2(N-1)/N beta in every piece (Table II)."""
    if n == measured:
        return cost
    return dataclasses.replace(
        cost,
        intercepts=cost.intercepts * (n - 1) / (measured - 1),
        slopes=cost.slopes * ((n - 1) / n) / ((measured - 1) / measured),
        source=f"{cost.source}, scaled as a ring from {measured} to {n} nodes",
    )

"""Iterations on 64 GPUs under schemes that overlap with backward alone, and under those that overlap with forward too.

Differs from the paper, of which the abstract alone is reproduced: computation is that of the ASC-WFBP testbed of the
same group, networks are a band of start-ups and rates around what the abstract names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from gradsync.configuration import schemes
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.bounds import Links
from gradsync.papers.ascwfbp import testbed as ascwfbp
from gradsync.papers.simulated import BOUNDS, timed, unsteady
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed
from gradsync.plan import Plan
from gradsync.plan.workload import Workload
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds, parse

BACKWARD_ALONE = (
    "wfbp",
    "mgwfbp",
    "fixed_buckets",
    "horovod_buckets",
)  # the state of the art that DeAR is held against
# the exact optimum of merged all-reduces; those that overlap with forward
BESIDE = ("optimal", "dear", "pipelined", "priority")
NETWORKS = {"10gbe": "10 Gbit/s Ethernet", "100gbib": "100 Gbit/s InfiniBand"}
BITS = 8
COLUMNS = [
    *("rung", "network", "model", "nodes", "workers", "scheme", "assumption", "iteration_seconds"),
    *("computation_seconds", "exposed_communication_seconds", "over_best", "over_slowest", "messages"),
    *("bytes_sent_per_rank", *BOUNDS, "note"),
]


class BandPoint(NamedTuple):
    """A point of the band: an all-reduce, and the links of a node."""

    label: str
    cost: Linear
    links: Links


def overlap(settings: Settings, results: Path) -> Table:
    """A row per network, model, scheme and point of the band."""
    frame = pd.DataFrame(list(_rows(settings, results)), columns=COLUMNS)
    held_against = frame.iteration_seconds.where(frame.scheme.isin(BACKWARD_ALONE))
    groups = held_against.groupby([frame.network, frame.model, frame.assumption])
    frame["over_best"] = groups.transform("min") / frame.iteration_seconds
    frame["over_slowest"] = groups.transform("max") / frame.iteration_seconds
    caption = (
        "Seconds of an iteration on 64 GPUs, simulated, smallest and largest over the band of start-ups and rates; in "
        "brackets over computation alone. Schemes up to optimal, the exact optimum of merged all-reduces, overlap with "
        "backward alone, the others with the next forward too: dear and pipelined split each all-reduce, priority "
        "sends pieces of tensors in the order in which forward needs them. Layer times, of forward and backward, are "
        "counted operations scaled to the totals of the ASC-WFBP testbed."
    )
    return Table(frame, _display(frame), caption + unsteady(frame))


def _rows(settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    file = Testbed(settings.of_paper("dear").testbed)
    workers, per_node = (int(file.positive(key, "value")) for key in ("workers", "gpus_per_node"))
    known = schemes.load(settings.schemes)
    contenders = [known[name] for name in (*BACKWARD_ALONE, *BESIDE)]
    for model in ascwfbp.MODELS:
        workload = ascwfbp.workload(model, settings, results)
        for network in NETWORKS:
            base: dict[str, Any] = {"rung": "simulated", "network": network, "model": model}
            base |= {"nodes": workers // per_node, "workers": workers}
            for point in band(file, network, workers):
                for scheme in contenders:
                    row = {**base, "scheme": scheme.name, "assumption": point.label}
                    yield row | _timed(scheme, workload, point, workers)


def band(file: Testbed, network: str, workers: int) -> Iterator[BandPoint]:
    """The start-ups and rates of a network; the ring crosses the link of each node once."""
    rate = file.positive("networks", network, "link_bits_per_second")
    per_node = int(file.positive("gpus_per_node", "value"))
    for startup in file.numbers("networks", network, "startup_seconds"):
        for efficiency in file.numbers("efficiency", "value"):
            seconds_per_byte = 2 * (workers - 1) / workers * BITS / (rate * efficiency)
            label = f"a={startup:g} s, {efficiency:.0%} of line rate"
            cost = Linear(startup, seconds_per_byte, f"ring of {workers}")
            yield BandPoint(label, cost, Links(rate * efficiency / BITS, ranks_per_node=per_node))


def _timed(scheme: schemes.Scheme, workload: Workload, point: BandPoint, workers: int) -> dict[str, Any]:
    plan = schemes.plan(scheme, workload, point.cost, workers)
    iteration = timed(plan, workload, alpha_beta.around(point.cost, workers), point.links)
    return {
        **iteration._asdict(),
        "computation_seconds": workload.forward_seconds + workload.backward_seconds,
        "messages": len(plan.messages()),
        "bytes_sent_per_rank": _sent(plan),
    }


def _sent(plan: Plan) -> float:
    """Bytes of gradients and parameters that a rank sends in an iteration, by rings."""
    switch, speeds = parse("switch", plan.ranks), Speeds(bandwidth=1.0)
    collectives = [
        op for op in plan.communications() if plan.buffer[op.writes[0].buffer].role in ("gradient", "parameter")
    ]
    a_byte = {kind: flow_level.cost("ring", switch, speeds, kind=kind).sent for kind in {op.kind for op in collectives}}
    return float(sum(a_byte[op.kind] * plan.bytes_of(op.writes) for op in collectives))


def _display(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per network and model, a column per scheme."""
    rows = []
    for (network, model), part in frame.groupby(["network", "model"], sort=False):
        row = {"network": NETWORKS[str(network)], "model": ascwfbp.MODELS[str(model)]}
        for scheme, of_scheme in part.groupby("scheme", sort=False):
            seconds = of_scheme.iteration_seconds
            over = seconds / of_scheme.computation_seconds
            row[str(scheme)] = f"{seconds.min():.3f} .. {seconds.max():.3f} ({over.min():.2f} .. {over.max():.2f})"
        rows.append(row)
    return pd.DataFrame(rows)

"""Table 4 simulated: weak scaling of Algorithm 4 on KNL nodes, from the rounds of its trees.

An iteration is the published one of a single node, and the exchange: node 1 broadcasts its weights, and gets the sum of
all nodes' weights, each by a binary tree that carries the whole message (lines 7 and 8 of Algorithm 4). A round takes
m over the rate of a transfer, and in the sum as long again for the addition behind it.

The order of both halves makes no difference to their time. Start-ups are left out, since a message has at least 28 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync import topologies
from gradsync.configuration.settings import Settings
from gradsync.papers.easgd_knl.testbed import FLOAT32, SCALED, bench, label, points
from gradsync.papers.labels import MODELS
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds

SCHEME = "knl_easgd"
BAND = ("rate", "exchange", "googlenet_parameters")
FITTED, HIDDEN = "fitted", "hidden"
BandPoint = dict[str, str]


def table4(settings: Settings, results: Path) -> Table:
    """A row per model and number of nodes as published, and one at each point of the band."""
    file = bench(settings)
    frame = pd.DataFrame([*_published(file), *_simulated(file)])
    caption = (
        "Table 4: weak scaling efficiency. Simulated: the published iteration of one node, and the rounds of a "
        "broadcast and a sum of all weights by binary trees, in sequence (exposed) or behind forward and backward "
        "(hidden). rate: of a transfer, and of the addition behind it; fitted: to the published time of two nodes of "
        "each model."
    )
    return Table(frame, _display(frame), caption)


def band(file: Testbed) -> list[BandPoint]:
    """The points: every combination, but that a rate that is fitted goes with an exposed exchange alone."""
    every = points(file, *BAND)
    return [point for point in every if not (point["rate"] == FITTED and point["exchange"] == HIDDEN)]


def _base(file: Testbed, model: str, nodes: int) -> dict[str, Any]:
    cores = int(nodes * file.number("knl", "cores", "value"))
    return {"scheme": SCHEME, "model": model, "nodes": nodes, "cores": cores}


def _timed(file: Testbed, model: str, seconds: float) -> dict[str, float]:
    iterations = file.positive("table4", "iterations", model)
    efficiency = file.positive("table4", "seconds", model, 1) / seconds
    return {
        "iterations": iterations,
        "seconds": seconds,
        "iteration_seconds": seconds / iterations,
        "efficiency": efficiency,
    }


def _published(file: Testbed) -> Iterator[dict[str, Any]]:
    for model in SCALED:
        for nodes in map(int, file.numbers("nodes", "value")):
            seconds = file.positive("table4", "seconds", model, nodes)
            yield {"rung": "published", **_base(file, model, nodes), "assumption": "", **_timed(file, model, seconds)}


def _simulated(file: Testbed) -> Iterator[dict[str, Any]]:
    trees = {nodes: _tree_rounds(nodes) for nodes in map(int, file.numbers("nodes", "value"))}
    for point in band(file):
        for model in SCALED:
            iterations = file.positive("table4", "iterations", model)
            computation = file.positive("table4", "seconds", model, 1) / iterations
            a_round = _weights(file, model, point) / _rate(file, model, point)
            for nodes, rounds in trees.items():
                exchange = rounds * a_round
                seconds = max(computation, exchange) if point["exchange"] == HIDDEN else computation + exchange
                row = {"rung": "simulated", **_base(file, model, nodes), "assumption": label(**point)}
                yield row | _timed(file, model, iterations * seconds)


def _tree_rounds(nodes: int) -> float:
    """How often the whole message takes its time, for transfers and for additions, in a sum and a broadcast."""
    topology = topologies.parse("switch", nodes)
    return flow_level.cost("binary_tree", topology, Speeds(), nodes, add_seconds_per_byte=1.0).line.b


def _weights(file: Testbed, model: str, point: BandPoint) -> float:
    """Bytes."""
    if model == "googlenet":
        return FLOAT32 * float(point["googlenet_parameters"])
    return file.positive("weights_bytes", "value", model)


def _rate(file: Testbed, model: str, point: BandPoint) -> float:
    """Bytes per second."""
    if point["rate"] != FITTED:
        return file.positive("rate", "bytes_per_second", point["rate"])
    alone, two = (file.positive("table4", "seconds", model, nodes) for nodes in (1, 2))
    exchange = (two - alone) / file.positive("table4", "iterations", model)
    return _tree_rounds(2) * _weights(file, model, point) / exchange


def _display(frame: pd.DataFrame) -> pd.DataFrame:
    """A row per model and number of nodes: as published, and the range over the band by rate and exchange."""
    rows = []
    for (model, nodes), part in frame.groupby(["model", "nodes"], sort=False):
        published = part[part.rung == "published"].iloc[0]
        row = {"model": MODELS[str(model)], "nodes": nodes, "cores": published.cores}
        row |= {"published": f"{published.efficiency:.1%} ({published.seconds:.0f} s)"}
        simulated = part[part.rung == "simulated"]
        kind = simulated.assumption.map(lambda name: ", ".join(name.split(", ")[:2]))  # without GoogLeNet's parameters
        for name, of_kind in simulated.groupby(kind, sort=False):
            least, most = (f"{end:.1%}" for end in (of_kind.efficiency.min(), of_kind.efficiency.max()))
            row[str(name)] = least if least == most else f"{least} .. {most}"
        rows.append(row)
    return pd.DataFrame(rows)

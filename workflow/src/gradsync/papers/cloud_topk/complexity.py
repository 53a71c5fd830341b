"""Eq. 3, 7, 9 and 10 beside what their steps take on the links: every transfer of every round, start-ups 0.

P workers are m nodes of n GPUs; of d elements with 4 bytes the density rho selects k. GPUs of a node have fast links,
and its n GPUs share one link to the other nodes. Values travel as the algorithms say, the formulas are as printed:

    naive_values        one All-Gather of k values over all GPUs, a ring           4 (P-1) k beta            (Eq. 3)
    reduce_scatter      of d elements within each node                             4 (n-1) d / n beta        (Eq. 7)
    inter_all_gather    between nodes, n streams of each at once, values and       4 (m-1) rho d / n beta    (Eq. 9)
                        indices of rho d / n elements (Algorithm 2, lines 12, 13)
    intra_all_gather    within each node, of slices that are dense (line 22)       4 (n-1) rho d m / n beta  (Eq. 10)

beta is that of the links inside a node for Eq. 7 and 10, and that of a node's link for the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync import collectives, topologies
from gradsync.collectives import ALL_GATHER, Round
from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds, Topology

ELEMENTS = 25e6  # d, the gradient of ResNet-50
ELEMENT, INDEX = 4, 4  # bytes
BITS = 8
STEPS = {
    "naive_values": "All-Gather of k values, all GPUs (Eq. 3)",
    "reduce_scatter": "Reduce-Scatter in a node (Eq. 7)",
    "inter_all_gather": "All-Gather between nodes (Eq. 9)",
    "intra_all_gather": "All-Gather in a node (Eq. 10)",
}


def complexity(settings: Settings, results: Path) -> Table:
    """A row per step and density."""
    file = Testbed(settings.of_paper(PAPER).testbed)
    topology = topologies.parse(file.text("topology", "value"))
    beta = {
        "inside": 1 / file.positive("gpu", "value", "nvlink_bytes_per_second"),
        "between": BITS / file.positive("link_bits_per_second", "value"),
    }
    densities = file.numbers("training_density", "value")
    frame = pd.DataFrame([row for density in densities for row in _rows(topology, beta, density)])
    frame["over_formula"] = frame.rounds_seconds / frame.formula_seconds
    display = pd.DataFrame(
        {
            "step": frame.step.map(STEPS),
            "density": frame.density,
            "on the links [ms]": (1e3 * frame.rounds_seconds).map("{:.3f}".format),
            "formula [ms]": (1e3 * frame.formula_seconds).map("{:.3f}".format),
            "ratio": frame.over_formula.map("{:.3g}".format),
        }
    )
    caption = (
        f"Steps of NaiveAG and HiTopKComm on {topology.name}, {ELEMENTS / 1e6:g} million elements of 32 bits, each "
        "transfer on its links without start-ups, beside the formulas as printed. Between nodes values and indices "
        "travel, and all streams of a node on its one link (CT-E13, CT-E14); slices are dense in a node (CT-E12)."
    )
    return Table(frame, display, caption)


def _rows(topology: Topology, beta: dict[str, float], density: float) -> Iterator[dict[str, Any]]:
    n, m = topology.shape  # GPUs of a node, nodes
    d, rho, k = ELEMENTS, density, density * ELEMENTS
    speeds = Speeds(bandwidth={kind: 1 / each for kind, each in beta.items()})
    formulas = {
        "naive_values": ELEMENT * (n * m - 1) * k * beta["between"],  # Eq. 3
        "reduce_scatter": ELEMENT * (n - 1) * d / n * beta["inside"],  # Eq. 7
        "inter_all_gather": ELEMENT * (m - 1) * rho * d / n * beta["between"],  # Eq. 9
        "intra_all_gather": ELEMENT * (n - 1) * rho * d * m / n * beta["inside"],  # Eq. 10
    }
    slice_piece = ELEMENT * d / (n * m)  # bytes: a slice of d / n elements is m pieces of the torus's
    piece = {
        "naive_values": ELEMENT * k,
        "reduce_scatter": slice_piece,
        "inter_all_gather": (ELEMENT + INDEX) * rho * d / n,
        "intra_all_gather": slice_piece,
    }
    for step, rounds in _rounds(topology).items():
        seconds = sum(flow_level.round_seconds(each, piece[step], topology, speeds) for each in rounds)
        row = {"rung": "simulated", "step": step, "nodes": m, "gpus_per_node": n, "density": density}
        yield row | {"rounds_seconds": seconds, "formula_seconds": formulas[step]}


def _rounds(topology: Topology) -> dict[str, list[Round]]:
    """The rounds of each step; those of HiTopKComm are the ones of 2DTAR without the sums between nodes."""
    n, m = topology.shape
    torus = collectives.rounds("torus2d", topology.shape)
    reduce_scatter, _, between, inside = (list(islice(torus, count - 1)) for count in (n, m, m, n))
    return {
        "naive_values": list(collectives.rounds("ring", topology.shape, kind=ALL_GATHER)),
        "reduce_scatter": reduce_scatter,
        "inter_all_gather": between,
        "intra_all_gather": inside,
    }

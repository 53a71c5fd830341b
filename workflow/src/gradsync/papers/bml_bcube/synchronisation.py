"""Fig. 5: gradient synchronisation times in units of T_F, the whole gradient over one full link.

Every transfer of every round is put on the links of its route; a round lasts as long as its most loaded link is busy.
No start-up, as in the paper.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pandas as pd

from gradsync import topologies
from gradsync.configuration.settings import Settings
from gradsync.papers.table import Table
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds
from gradsync.topologies.bcube import BCube

BOTH = ("bml", "ps_p2p")
TREE = ("hierarchical", "ps_p2p", "ring")
# number of servers: each network, and the collectives on it. 16 and 1024 are those of Fig. 5.
COMPARED: dict[int, dict[str, tuple[str, ...]]] = {
    9: {"bcube:3,2": BOTH},
    16: {"bcube:4,2": BOTH, "fat_tree:4": TREE},
    64: {"bcube:4,3": BOTH, "fat_tree:8": TREE},
    1024: {"bcube:32,2": BOTH, "fat_tree:16": TREE},
    65536: {"bcube:16,4": ("bml",)},  # PS would be 4 billion messages per round
}
DRAWN = (16, 1024)


class Time(NamedTuple):
    """A time in units of T_F: from the links, in closed form, and as the paper states it (NaN if it doesn't)."""

    simulated: float
    formula: float
    stated: float


def fig5(settings: Settings, results: Path) -> Table:
    """A row per network and algorithm."""
    rows = []
    for servers, networks in COMPARED.items():
        for network, schemes in networks.items():
            for scheme in schemes:
                time = _time(scheme, network, servers)
                row = {"rung": "simulated", "scheme": scheme, "topology": network, "nodes": servers}
                rows.append(row | {"gst": time.simulated, "formula": time.formula, "stated": time.stated})
    frame = pd.DataFrame(rows)
    bml = frame[frame.scheme == "bml"].set_index("nodes").gst
    frame["over_bml"] = frame.gst / frame.nodes.map(bml)
    frame["off_formula"] = frame.gst / frame.formula - 1
    display = pd.DataFrame(
        {
            "servers": frame.nodes,
            "network": frame.topology,
            "algorithm": frame.scheme,
            "GST / T_F": frame.gst.map("{:.4f}".format),
            "closed form": frame.formula.map("{:.4f}".format),
            "the paper's": frame.stated.map(lambda stated: "-" if pd.isna(stated) else f"{stated:.4f}"),
            "over BML": frame.over_bml.map("{:.3f}".format),
        }
    )
    ps = frame[(frame.scheme == "ps_p2p") & frame.topology.str.startswith("bcube")].set_index("nodes").over_bml
    ratios = ", ".join(f"{ratio:.2f} times with {servers} servers" for servers, ratio in ps.items())
    caption = (
        "Fig. 5: gradient synchronisation time (GST) in units of T_F from the links that every transfer crosses, "
        "without start-up. Closed forms: BML 2(N-1)/(kN), PS on BCube 2(n-1)/n (shortest paths, evenly spread), all on "
        f"a Fat-Tree 2(N-1)/N; they differ by {frame.off_formula.abs().max():.0e} at most. The paper states that PS on "
        f"BCube takes double the time of BML; it takes {ratios} (64: k = 3; BM-E09)."
    )
    return Table(frame, display, caption)


def _time(scheme: str, network: str, servers: int) -> Time:
    topology = topologies.parse(network, servers)
    simulated = flow_level.cost(scheme, topology, Speeds(), servers).line.b
    on_tree = 2 * (servers - 1) / servers
    if not isinstance(topology, BCube):
        return Time(simulated, on_tree, on_tree)
    n, k = topology.n, topology.k
    bml = on_tree / k
    if scheme == "bml":
        return Time(simulated, bml, bml)
    return Time(simulated, 2 * (n - 1) / n, 2 * bml)

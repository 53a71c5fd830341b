"""What the networks cost to build (Section 3.1): switches, their ports, and interfaces of servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from gradsync import topologies
from gradsync.configuration.settings import Settings
from gradsync.papers.table import Table

# Each BCube and the smallest Fat-Tree that holds as many servers.
PAIRS = (
    ("bcube:3,2", "fat_tree:4"),
    ("bcube:4,2", "fat_tree:4"),
    ("bcube:4,3", "fat_tree:8"),
    ("bcube:32,2", "fat_tree:16"),
    ("bcube:16,4", "fat_tree:64"),
)


def switches(settings: Settings, results: Path) -> Table:
    """A row per network; that of a BCube also names the Fat-Tree of its pair and has the ratios to it."""
    rows: dict[str, dict[str, Any]] = {}
    for cube, tree in PAIRS:
        cube_row, tree_row = _counts(cube), _counts(tree)
        cube_row |= {"fat_tree": tree, "switch_ratio": cube_row["switches"] / tree_row["switches"]}
        # the paper's 5 N/n, with the switches of the BCube, whether or not there is such a Fat-Tree
        cube_row |= {
            "formula_fat_tree": 5 * cube_row["nodes"] / cube_row["ports_a_switch"],
            "port_ratio": cube_row["ports"] / tree_row["ports"],
        }
        cube_row["formula_ratio"] = cube_row["switches"] / cube_row["formula_fat_tree"]
        rows[cube] = cube_row
        rows.setdefault(tree, tree_row)
    frame = pd.DataFrame(rows.values())
    display = frame.drop(columns="rung").rename(columns=lambda name: name.replace("_", " "))
    display = display.rename(columns={"nodes": "servers", "nics": "interfaces"})
    display = display.astype(object).where(display.notna(), "-")
    caption = (
        "Switches, all their ports, and interfaces of all servers. Formula: the paper's 5 N/n for a Fat-Tree of "
        "switches like those of the BCube, which gives k/5, but a three-layer Fat-Tree of n-port switches holds n^3/4 "
        "servers, fewer than n^k for k > 2 (BM-E17). Ratios: to the smallest Fat-Tree that holds as many servers; "
        "there k/5 is the ratio of ports where that Fat-Tree is full, not of switches (BM-E10)."
    )
    return Table(frame, display, caption)


def _counts(network: str) -> dict[str, Any]:
    topology = topologies.parse(network)
    equipment = topology.equipment()
    return {
        "rung": "derived",
        "topology": network,
        "nodes": topology.hosts,
        "ports_a_switch": equipment.ports // equipment.switches,
        "switches": equipment.switches,
        "ports": equipment.ports,
        "nics": equipment.nics,
    }

"""The machines that the ranks of a launch run on.

A node is a machine with a kernel of its own: several nodes of Slurm may be one.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from gradsync import topologies
from gradsync.files.results import machine
from gradsync.plan import Plan

BOOT = Path("/proc/sys/kernel/random/boot_id")


def machines() -> dict[str, Any]:
    """Hardware and software of this rank's machine, `cores` of all `nodes` with ranks; collective over all ranks.

    The cores of a node are those that its ranks may use.
    """
    cores: dict[str, set[int]] = {}
    for node, usable in everyones((_node(), sorted(os.sched_getaffinity(0)))):
        cores.setdefault(node, set()).update(usable)
    return {**machine(), "cores": sum(map(len, cores.values())), "nodes": len(cores)}


def nodes() -> list[str]:
    """The node of each rank, in the order of the ranks; collective over all ranks."""
    return everyones(_node())


def gathered_by_node(value: Any) -> dict[str, list[Any]]:
    """`value` of the ranks of each node; collective over all ranks."""
    by_node: dict[str, list[Any]] = {}
    for node, node_value in everyones((_node(), value)):
        by_node.setdefault(node, []).append(node_value)
    return by_node


def misplaced(plan: Plan, nodes: Sequence[str]) -> list[str]:
    """Warnings about a plan whose topology is made of nodes if ranks are placed otherwise; none on a single node."""
    topology = plan.provenance.get("topology")
    together = topologies.parse(topology, plan.ranks).ranks_a_node if topology else None
    if together is None or len(set(nodes)) == 1:
        return []
    parts = [set(nodes[first : first + together]) for first in range(0, len(nodes), together)]
    if all(len(part) == 1 for part in parts) and len(set().union(*parts)) == len(parts):
        return []
    return [
        f"topology {topology} has {together} ranks in a row on each node, this launch has not: its times are not those "
        "of that topology (start ranks in blocks, srun --distribution=block, as many a node as it says)"
    ]


def _node() -> str:
    return BOOT.read_text() if BOOT.is_file() else os.uname().nodename


def everyones(value: Any) -> list[Any]:
    """`value` of each rank, in their order; collective over all ranks."""
    values: list[Any] = [value]
    if dist.is_initialized():
        values = [None] * dist.get_world_size()
        dist.all_gather_object(values, value)
    return values

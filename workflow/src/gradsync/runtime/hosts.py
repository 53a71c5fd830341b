"""The machines that the ranks of a launch run on, together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch.distributed as dist

from gradsync.results import machine

BOOT = Path("/proc/sys/kernel/random/boot_id")


def machines() -> dict[str, Any]:
    """Hardware and software of this rank's machine, `cores` of all `nodes` with ranks; collective over all ranks.

    A node is what has a kernel of its own: several nodes of Slurm may be one. Its cores are those its ranks may use.
    """
    own = (BOOT.read_text() if BOOT.is_file() else os.uname().nodename, sorted(os.sched_getaffinity(0)))
    places: list[Any] = [own]
    if dist.is_initialized():
        places = [None] * dist.get_world_size()
        dist.all_gather_object(places, own)
    cores: dict[str, set[int]] = {}
    for node, usable in places:
        cores.setdefault(node, set()).update(usable)
    return {**machine(), "cores": sum(map(len, cores.values())), "nodes": len(cores)}

"""Bind each rank to its part of the machine, before it takes memory: what it writes first then lies near its cores.

Ranks are bound if their plan sums gradients in memory that they share: they are the parts of one chip (SC17 paper,
Section 6.2).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import torch

from gradsync.clusters import chip
from gradsync.clusters.chip import Core
from gradsync.collectives import in_memory
from gradsync.errors import InputError
from gradsync.plan import Collective, Plan
from gradsync.runtime.hosts import gathered_by_node
from gradsync.runtime.launch import elsewhere

SYS = Path("/sys/devices/system")


def parts_of(plan: Plan) -> bool:
    """Whether the ranks of a plan are parts of a machine: they sum in memory."""
    return any(isinstance(op, Collective) and in_memory(op.algorithm) for role in plan.roles for op in role.flat)


def cores(sys: Path = SYS) -> list[Core]:
    """The cores that this process may use, with the processors of each that it may use."""
    usable = os.sched_getaffinity(0)
    node_of = {cpu: int(folder.name[4:]) for folder in sys.glob("node/node[0-9]*") for cpu in _cpus(folder / "cpulist")}
    every: dict[tuple[int, int, int], list[int]] = {}
    for cpu in sorted(usable):
        topology = sys / f"cpu/cpu{cpu}/topology"
        socket, number = _number(topology / "physical_package_id", 0), _number(topology / "core_id", cpu)
        every.setdefault((node_of.get(cpu, 0), socket, number), []).append(cpu)
    return [Core(*key, tuple(cpus)) for key, cpus in sorted(every.items())]


def refuse(plan: Plan, where: str) -> None:
    """Raises InputError for more parts than this machine has cores, if the ranks of the plan will be its parts."""
    if parts_of(plan) and not elsewhere():
        chip.refuse_parts(plan.ranks, len(cores()), where)


def bind_parts(plans: Iterable[Plan]) -> None:
    """Bind this rank if one of the plans is of parts of a machine; all contenders of a launch then run so. Collective.

    Raises InputError as `bind` does.
    """
    if any(map(parts_of, plans)):
        bind()


def bind() -> tuple[Core, ...]:
    """Bind this rank to its part of the machine, with a thread per core; returns its cores. Collective over all ranks.

    Ranks that somebody has bound to cores of their own already stay there.

    Raises InputError for more parts than cores, and for ranks that are bound to some of the cores of others.
    """
    mine = cores()
    by_node = gathered_by_node((int(os.environ["RANK"]), mine))
    (others,) = (part for part in by_node.values() if any(rank == int(os.environ["RANK"]) for rank, _ in part))
    # threads of one core are no cores of their own, whichever of its processors a rank may use
    shared = [own for _, own in others if {core.place for core in own} & {core.place for core in mine}]
    if len(shared) > 1:
        if any(own != mine for own in shared) or len(shared) < len(others):
            raise InputError(
                "ranks are bound to some of the cores of others: bind each to cores of its own (srun "
                "--cpu-bind=cores), or none of them"
            )
        place = sorted(rank for rank, _ in others).index(int(os.environ["RANK"]))
        mine = list(chip.cut(mine, len(others))[place])
    os.sched_setaffinity(0, {cpu for core in mine for cpu in core.cpus})
    torch.set_num_threads(len(mine))
    return tuple(mine)


def _cpus(path: Path) -> list[int]:
    """The processors in a list as Linux writes it: 0-15,32-47."""
    cpus: list[int] = []
    for part in filter(None, _text(path).split(",")):
        first, _, last = part.partition("-")
        cpus += range(int(first), int(last or first) + 1)
    return cpus


def _number(path: Path, otherwise: int) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else otherwise


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

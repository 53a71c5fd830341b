"""What the nodes of a cluster are: the ranks on them read it from /proc, /sys and the driver.

A node is what has a kernel of its own: ranks with the same boot id are on one node, whatever a container or a
scheduler calls it.
"""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
import torch.distributed as dist

from gradsync import __version__
from gradsync.clusters.nodes import Interface, Kind, Node, Nodes, NumaPart, Processor
from gradsync.errors import RunError
from gradsync.files.results import machine
from gradsync.measure import cluster_gpus

SYS = Path("/sys")
GIB = 2**30


class Place(NamedTuple):
    """Where a rank is: the boot id of its kernel, the host's name, and what Slurm calls the node ("": no Slurm)."""

    boot: str
    host: str
    slurm: str


class Placement(NamedTuple):
    """The nodes that ranks run on: `ranks[i]` are those of node i, `hosts[i]` its name; `notes` for people."""

    ranks: list[list[int]]
    hosts: list[str]
    notes: list[str]

    @property
    def ranks_per_node(self) -> int:
        """The same on every node."""
        return len(self.ranks[0])


def this_place() -> Place:
    """The place of this process."""
    host = socket.gethostname()
    return Place(_read(Path("/proc/sys/kernel/random/boot_id")) or host, host, os.environ.get("SLURMD_NODENAME", ""))


def placement_of(places: Sequence[Place]) -> Placement:
    """Nodes by the place of each rank, in order of their first rank.

    Raises RunError if they don't hold the same number of ranks.
    """
    by_kernel: dict[str, list[int]] = {}
    for rank, place in enumerate(places):
        by_kernel.setdefault(place.boot, []).append(rank)
    ranks = list(by_kernel.values())
    hosts = [places[of_node[0]].host for of_node in ranks]
    if len({len(of_node) for of_node in ranks}) > 1:
        counts = ", ".join(f"{host} {len(of_node)}" for host, of_node in zip(hosts, ranks, strict=True))
        raise RunError(
            f"cluster measure: ranks are not spread evenly over the nodes ({counts}): start the same number on each, "
            "with srun by --ntasks-per-node"
        )
    notes = []
    for of_node, host in zip(ranks, hosts, strict=True):
        names = sorted({places[rank].slurm for rank in of_node} - {""})
        if len(names) > 1:
            notes.append(
                f"Slurm calls {host} by {len(names)} names ({', '.join(names)}): it is one node, with one memory"
            )
    return Placement(ranks, hosts, notes)


def nodes() -> tuple[Placement, Nodes]:
    """What the nodes of all ranks are; collective, the same on every rank. Raises RunError as `placement_of` does."""
    mine = (this_place(), this_node(), cluster_gpus.visible(), cluster_gpus.links())
    of_ranks = [mine] * dist.get_world_size()
    dist.all_gather_object(of_ranks, mine)
    placement = placement_of([place for place, _, _, _ in of_ranks])
    kinds: dict[str, Kind] = {}
    for host, ranks in zip(placement.hosts, placement.ranks, strict=True):
        # a scheduler may show each rank its own device only
        by_pci = {gpu.pci: gpu for rank in ranks for gpu in of_ranks[rank][2]}
        gpus = tuple(by_pci[pci] for pci in sorted(by_pci))
        links = cluster_gpus.matrix(gpus, [of_ranks[rank][3] for rank in ranks])
        node = of_ranks[ranks[0]][1].model_copy(update={"gpus": gpus, "gpu_links": links})
        key = node.model_dump_json()
        hosts = (*kinds[key].hosts, host) if key in kinds else (host,)
        kinds[key] = Kind(**node.model_dump(), hosts=hosts)
    count = len(placement.ranks)
    return placement, Nodes(count=count, ranks_per_node=placement.ranks_per_node, kinds=tuple(kinds.values()))


def this_node() -> Node:
    """The node that this rank runs on, without its devices."""
    return Node(
        processor=processor(),
        memory_gib=round(psutil.virtual_memory().total / GIB, 1),
        interfaces=interfaces(),
        transport={
            "gloo_interface": gloo_interface(),
            "nccl_interface": os.environ.get("NCCL_SOCKET_IFNAME"),
            "nccl_hca": os.environ.get("NCCL_IB_HCA"),
        },
        software=software(),
    )


def processor(sys: Path = SYS) -> Processor:
    """Model, sockets, cores and NUMA parts, from `sys`; a core counts once, however many threads it has."""
    packages, cores, threads = set(), set(), 0
    for topology in sorted(sys.glob("devices/system/cpu/cpu[0-9]*/topology")):
        package, core = _read(topology / "physical_package_id"), _read(topology / "core_id")
        packages.add(package)
        cores.add((package, core))
        threads += 1
    parts = []
    for folder in sorted(sys.glob("devices/system/node/node[0-9]*"), key=lambda folder: int(folder.name[4:])):
        total = next((line.split() for line in _read(folder / "meminfo").splitlines() if "MemTotal:" in line), [])
        memory = round(int(total[-2]) * 1024 / GIB, 1) if total else 0.0
        parts.append(NumaPart(number=int(folder.name[4:]), cpus=_read(folder / "cpulist"), memory_gib=memory))
    return Processor(
        model=machine()["processor"],
        architecture=platform.machine(),
        sockets=len(packages) or 1,
        cores=len(cores) or threads or (os.cpu_count() or 1),
        threads=threads or (os.cpu_count() or 1),
        usable=len(os.sched_getaffinity(0)),
        numa=tuple(parts),
    )


def interfaces(sys: Path = SYS) -> tuple[Interface, ...]:
    """Network devices of hardware, and InfiniBand ports, that are up, with the speed that their driver states."""
    devices = []
    for folder in sorted(sys.glob("class/net/*")):
        if (folder / "device").exists() and _read(folder / "operstate") != "down":
            speed = _read(folder / "speed")  # Mbit/s; -1 or an error if the driver knows none
            gbit = int(speed) / 1000 if speed.isdigit() and int(speed) > 0 else None
            kind = {"1": "ethernet", "32": "infiniband"}.get(_read(folder / "type"), "other")
            devices.append(Interface.model_validate({"name": folder.name, "kind": kind, "gbit_per_second": gbit}))
    for port in sorted(sys.glob("class/infiniband/*/ports/*")):
        if "ACTIVE" in _read(port / "state"):  # "4: ACTIVE"
            rate = _read(port / "rate").split()  # "100 Gb/sec (4X EDR)"
            kind = "ethernet" if _read(port / "link_layer") == "Ethernet" else "infiniband"
            name, gbit = f"{port.parent.parent.name}:{port.name}", float(rate[0]) if rate else None
            devices.append(Interface.model_validate({"name": name, "kind": kind, "gbit_per_second": gbit}))
    return tuple(devices)


def gloo_interface() -> str:
    """The interface that Gloo talks over: the environment's, else that of the address of the host's own name."""
    named = os.environ.get("GLOO_SOCKET_IFNAME")
    if named:
        return named
    try:
        of_host = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None)}
    except OSError:
        of_host = set()
    for name, addresses in psutil.net_if_addrs().items():
        if of_host & {address.address.split("%")[0] for address in addresses}:
            return name
    return "lo"  # what Gloo takes if the name leads nowhere


def software() -> dict[str, str]:
    """Versions that times depend on."""
    host = machine()
    versions = {"gradsync": __version__, "python": host["python"], "system": host["system"], "torch": torch.__version__}
    return {**versions, **cluster_gpus.software()}


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""

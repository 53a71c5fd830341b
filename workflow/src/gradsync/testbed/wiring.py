"""Which cables a topology is made of: hosts, switches, an interface and an address for each end. Nothing is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradsync.errors import InputError
from gradsync.topologies import Topology
from gradsync.topologies.bcube import BCube
from gradsync.topologies.dense_gpu import DenseGpu
from gradsync.topologies.fat_tree import FatTree
from gradsync.topologies.switch import Switch

MOST_LANES = 15
CONTROL = "control"  # the network that ranks meet over; its links have no limit
MOST_ON_A_NETWORK = 250  # addresses of a /24


@dataclass(frozen=True)
class Cable:
    """A host's interface, in a switch.

    `ranks` are all that run on the host, between which there is no limit. `rails` are the numbers that plans have for
    this link; a cable of the control network has none. `address` is IPv4 in a network of 24 bits that all cables of the
    switch share.
    """

    host: int
    interface: str
    switch: str
    address: str
    rails: tuple[int, ...]
    ranks: tuple[int, ...]

    def on_lane(self, lane: int) -> tuple[str, str]:
        """(the address that a lane has on this interface, what the interface is called there); lane 0 has its own."""
        first, second, rest = self.address.split(".", 2)
        name = f"{self.interface}:{lane}" if lane else self.interface
        return f"{first}.{int(second) + (MOST_LANES + 1) * lane}.{rest}", name


Hosts = list[tuple[int, ...]]  # the ranks on each


def cables(topology: Topology, ranks: int | None = None) -> list[Cable]:
    """Every cable of the hosts that hold the first `ranks` ranks (None: all), control network first.

    Raises InputError for a topology that can't be wired on one machine, or too many ranks.
    """
    ranks = topology.hosts if ranks is None else ranks
    wire = WIRED.get(type(topology))
    if wire is None:
        known = ", ".join(sorted(kind.__module__.rpartition(".")[2] for kind in WIRED))
        raise InputError(f"topology {topology.name!r} can't be emulated: known are {known}")
    if not 1 <= ranks <= topology.hosts:
        raise InputError(f"topology {topology.name!r} holds 1 to {topology.hosts} ranks, not {ranks}")
    together = topology.ranks_a_node or 1
    if (needed := -(-ranks // together)) > MOST_ON_A_NETWORK:
        raise InputError(f"topology {topology.name!r}: {needed} hosts, a testbed has {MOST_ON_A_NETWORK} at most")
    hosts = [tuple(range(first, min(first + together, ranks))) for first in range(0, ranks, together)]
    control = [Cable(host, CONTROL, CONTROL, f"10.0.0.{host + 1}", (), members) for host, members in enumerate(hosts)]
    return control + wire(topology, hosts)


def _one_switch(topology: Topology, hosts: Hosts) -> list[Cable]:
    """One link per host. A Fat-Tree is wired so too: it never blocks, and the one interface of a host is its limit.

    Dense nodes have one link as well: whatever leaves a node, on either level of a collective, leaves on it.
    """
    rails = tuple(range(len(topology.shape))) if isinstance(topology, DenseGpu) else (0,)
    return [Cable(host, "rail0", "switch", f"10.1.0.{host + 1}", rails, members) for host, members in enumerate(hosts)]


def _bcube(topology: BCube, hosts: Hosts) -> list[Cable]:
    """Switch s of level l joins the hosts that differ in digit l alone."""
    cables = []
    for host, members in enumerate(hosts):
        for level in range(topology.k):
            unit = topology.n**level
            digit = host // unit % topology.n
            switch = host // (unit * topology.n) * unit + host % unit
            address = f"10.{level + 1}.{switch}.{digit + 1}"
            cables.append(Cable(host, f"rail{level}", f"level{level}-{switch}", address, (level,), members))
    return cables


WIRED: dict[type, Callable[..., list[Cable]]] = {
    Switch: _one_switch,
    FatTree: _one_switch,
    DenseGpu: _one_switch,
    BCube: _bcube,
}

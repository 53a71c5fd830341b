"""Which cables a topology is made of: hosts, switches, an interface and an address for each end. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradsync.errors import InputError
from gradsync.topologies import Topology
from gradsync.topologies.bcube import BCube
from gradsync.topologies.fat_tree import FatTree
from gradsync.topologies.switch import Switch

CONTROL = "control"  # the network that ranks meet over; its links have no limit
MOST_ON_A_NETWORK = 250  # addresses of a /24


@dataclass(frozen=True)
class Cable:
    """A host's interface, in a switch. `rail`: which of the host's links; None: the control network.

    `address` is IPv4 in a network of 24 bits that all cables of the switch share.
    """

    host: int
    interface: str
    switch: str
    address: str
    rail: int | None

    @property
    def network(self) -> str:
        """What the interface reaches, as a route names it."""
        return f"{self.address.rpartition('.')[0]}.0/24"


def cables(topology: Topology, hosts: int | None = None) -> list[Cable]:
    """Every cable of the first `hosts` hosts (None: of all), control network first.

    Raises InputError for a topology that can't be wired on one machine, or too many hosts.
    """
    hosts = topology.hosts if hosts is None else hosts
    wire = WIRED.get(type(topology))
    if wire is None:
        known = ", ".join(sorted(kind.__module__.rpartition(".")[2] for kind in WIRED))
        raise InputError(f"topology {topology.name!r} can't be emulated: known are {known}")
    if not 1 <= hosts <= topology.hosts:
        raise InputError(f"topology {topology.name!r} holds 1 to {topology.hosts} hosts, not {hosts}")
    if hosts > MOST_ON_A_NETWORK:
        raise InputError(f"topology {topology.name!r}: {hosts} hosts, a testbed has {MOST_ON_A_NETWORK} at most")
    control = [Cable(host, CONTROL, CONTROL, f"10.0.0.{host + 1}", None) for host in range(hosts)]
    return control + [cable for cable in wire(topology) if cable.host < hosts]


def _one_switch(topology: Topology) -> list[Cable]:
    """Also for a Fat-Tree, which never blocks: its hosts have one interface each, and that is their limit."""
    return [Cable(host, "rail0", "switch", f"10.1.0.{host + 1}", 0) for host in range(topology.hosts)]


def _bcube(topology: BCube) -> list[Cable]:
    """Switch s of level l joins the hosts that differ in digit l alone."""
    found = []
    for host in range(topology.hosts):
        for level in range(topology.k):
            unit = topology.n**level
            digit = host // unit % topology.n
            switch = host // (unit * topology.n) * unit + host % unit
            address = f"10.{level + 1}.{switch}.{digit + 1}"
            found.append(Cable(host, f"rail{level}", f"level{level}-{switch}", address, level))
    return found


WIRED: dict[type, Callable[..., list[Cable]]] = {Switch: _one_switch, FatTree: _one_switch, BCube: _bcube}

"""What this machine can give to a local Slurm: TCP ports that nobody uses, an address, shares of its memory."""

from __future__ import annotations

import ipaddress
import os
import socket

from gradsync.errors import InputError

LOOPBACK = "127.0.0.1"
PORTS_FROM, PORTS_TO = 20000, 32000  # below those that outgoing connections take


def memory_each(nodes: int) -> int:
    """MB that each of `nodes` nodes may claim so that all of them have no more than this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 // nodes


def address() -> str | None:
    """The only address that Slurm can be bound to: that of this host's name. None if Slurm can't be bound to it.

    `NoInAddrAny` of slurm.conf(5) knows neither NodeAddr nor SlurmctldHost. A step looks for its srun at the address
    that srun came from, so the two must be the same: they aren't for 127.0.1.1, to which some systems resolve their own
    name, nor for a name that means another machine.
    """
    try:
        candidate = socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # sends nothing
            probe.connect((candidate, 1))
            return str(candidate) if probe.getsockname()[0] == candidate else None
    except OSError:
        return None


def is_loopback(address: str | None) -> bool:
    """True if nobody but this machine reaches the address; None stands for all addresses."""
    return address is not None and ipaddress.ip_address(address).is_loopback


def free_ports(count: int) -> list[int]:
    """TCP ports of this machine that nobody listens on, below those that outgoing connections take.

    Raises InputError if they are too few.
    """
    first = int.from_bytes(os.urandom(2), "big")
    held: list[socket.socket] = []
    try:
        for step in range(PORTS_TO - PORTS_FROM):
            listener = socket.socket()
            held.append(listener)
            try:
                listener.bind(("", PORTS_FROM + (first + step) % (PORTS_TO - PORTS_FROM)))
            except OSError:
                held.pop().close()
            if len(held) == count:
                return [listener.getsockname()[1] for listener in held]
    finally:
        for listener in held:
            listener.close()
    raise InputError(
        f"a local Slurm needs {count} free TCP ports between {PORTS_FROM} and {PORTS_TO}, and only {len(held)} are:"
        " end what listens there, or start fewer nodes (--nodes)"
    )

"""What this machine can give to a local Slurm: TCP ports that nobody uses, shares of its memory."""

from __future__ import annotations

import os
import socket

from gradsync.errors import InputError

PORTS_FROM, PORTS_TO = 20000, 32000  # below those that outgoing connections take


def memory_each(nodes: int) -> int:
    """MB that each of `nodes` may claim so that all of them have no more than this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20 // nodes


def free_ports(count: int) -> list[int]:
    """TCP ports at 127.0.0.1 that nobody listens on, below those that outgoing connections take.

    InputError where they are too few.
    """
    first = int.from_bytes(os.urandom(2), "big")
    held: list[socket.socket] = []
    try:
        for step in range(PORTS_TO - PORTS_FROM):
            listener = socket.socket()
            held.append(listener)
            try:
                listener.bind(("127.0.0.1", PORTS_FROM + (first + step) % (PORTS_TO - PORTS_FROM)))
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

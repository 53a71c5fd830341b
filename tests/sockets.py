"""Which TCP sockets listen, of all processes that name a folder in their command or environment; Linux.

Servers of this project run in a folder of their own, so that it tells them from all others.

    python tests/sockets.py FOLDER
"""

from __future__ import annotations

import ipaddress
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from waiting import until

LISTENS = "0A"  # state of a socket in /proc/net/tcp


class Listener(NamedTuple):
    """A process and the address that it accepts connections at, in its own network namespace."""

    process: str
    pid: int
    address: str
    port: int

    @property
    def loopback(self) -> bool:
        """Whether nobody reaches it from another machine."""
        return ipaddress.ip_address(self.address).is_loopback


def listeners(folder: str | Path) -> list[Listener]:
    """Of all processes that name the folder; those of other users only for root."""
    sockets = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is another user's
            words = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if str(folder).encode() in words and process.name != str(Path("/proc/self").resolve().name):
                sockets += _of(process)
    return sorted(sockets)


def while_it_runs(command: list[str], folder: str | Path, environment: Mapping[str, str] = os.environ) -> set[Listener]:
    """Those of all processes of a command, looked at all the time until it ends; fails if it fails."""
    seen: set[Listener] = set()
    marked = {**environment, "SOCKETS_OF": str(folder)}  # which ranks inherit
    with subprocess.Popen(command, env=marked, stdout=subprocess.DEVNULL) as started:

        def ended() -> bool:
            seen.update(listeners(folder))
            return started.poll() is not None

        try:
            until(ended)
        finally:
            started.kill()
    assert started.returncode == 0
    return seen


def _of(process: Path) -> list[Listener]:
    addresses = {}
    for table in ("tcp", "tcp6"):
        for line in (process / "net" / table).read_text().splitlines()[1:]:
            fields = line.split()
            local, state = fields[1], fields[3]
            if state == LISTENS:
                address, _, port = local.partition(":")
                addresses[fields[9]] = _address(address), int(port, 16)
    name = (process / "comm").read_text().strip()
    sockets = []
    for descriptor in (process / "fd").iterdir():
        with suppress(OSError):
            kind, _, number = str(descriptor.readlink()).partition(":")
            if kind == "socket" and number.strip("[]") in addresses:
                sockets.append(Listener(name, int(process.name), *addresses[number.strip("[]")]))
    return sockets


def _address(words: str) -> str:
    """From the kernel's: 32-bit words in the machine's own order of bytes."""
    packed = b"".join(int(words[start : start + 8], 16).to_bytes(4, sys.byteorder) for start in range(0, len(words), 8))
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


if __name__ == "__main__":
    for each in listeners(sys.argv[1]):
        print(
            f"{each.process:<16} {each.pid:>8} {each.address:>16} {each.port:>6} {'loopback' if each.loopback else ''}"
        )

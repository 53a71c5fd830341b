"""Testbeds in the kernel for tests, which need root and iproute2, and a look at the network namespaces that exist."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gradsync import topologies
from gradsync.testbed import namespaces
from gradsync.testbed.namespaces import testbed as made_of
from gradsync.testbed.wiring import Cable, cables

__all__ = ["FOLDERS", "RATE", "made_of", "netns", "reached", "real", "wired"]

RATE = 4e8
FOLDERS = [str(Path(__file__).parent)]  # in which another program finds this module
MISSING = "" if shutil.which("ip") and shutil.which("tc") else "no iproute2"
MISSING = MISSING or ("" if os.geteuid() == 0 else "not root")
real = pytest.mark.skipif(bool(MISSING), reason=f"testbeds can't be made here: {MISSING}")


def wired(text: str, hosts: int | None = None) -> list[Cable]:
    return cables(topologies.parse(text), hosts)


def netns() -> set[str]:
    """All namespaces but those of other testbeds, of neither this process nor one that it has started."""
    listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {name for name in (line.split()[0] for line in listing.splitlines()) if not of_others(name)}


def of_others(name: str) -> bool:
    if not (match := namespaces.NAME.fullmatch(name)) or int(match[1]) == os.getpid():
        return False
    try:
        _, parent, *_ = Path(f"/proc/{match[1]}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # its process is gone: somebody has left it behind
        return False
    return int(parent) != os.getpid()


def reached(network: namespaces.Testbed, host: int, address: str) -> str:
    """What happens to a connection to a port that nobody listens on: refused by the host, or no way to it."""
    attempt = f"import socket; socket.create_connection(({address!r}, 9), timeout=60)"
    ended = subprocess.run(network.on(host, [sys.executable, "-S", "-c", attempt]), capture_output=True, text=True)
    return ended.stderr.strip().splitlines()[-1]

"""Watches the links of a rank's host: a cable that is cut ends the rank. TCP alone would wait for minutes.

The rank ends with a status that tells its launcher which interface it was, and prints nothing itself: on a host of
several ranks all of them notice.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from gradsync.runtime.fabric import INTERFACE, fabric

DOWN = 64  # the exit status of a rank whose control network is cut; one more is its first rail, and so on
SECONDS = 1.0  # between two looks; a link is down if it is twice in a row, as it may be for a moment once it is made
NOTICED_SECONDS = 10 * SECONDS  # after which the rank has ended, on a busy machine too
SIOCGIFFLAGS, IFF_RUNNING = 0x8913, 0x40  # of linux/sockios.h and linux/if.h


@contextmanager
def watched() -> Iterator[None]:
    """On a testbed, end this process if a link of its host is down meanwhile."""
    network = fabric()
    if network is None:
        yield
        return
    over = threading.Event()
    names = [os.environ[INTERFACE], *network.interfaces]
    threading.Thread(target=_watch, args=(names, over), name="links", daemon=True).start()
    try:
        yield
    except Exception:
        _leave(names, _down(names))  # what failed may be the first to notice
        raise
    finally:
        over.set()


def lost(status: int, interfaces: Sequence[str]) -> str:
    """Which of a host's interfaces the exit status of a rank tells of; empty if it ended otherwise."""
    return interfaces[status - DOWN] if DOWN <= status < DOWN + len(interfaces) else ""


def _watch(names: Sequence[str], over: threading.Event) -> None:
    down: set[str] = set()
    while not over.wait(SECONDS):
        before, down = down, _down(names)
        _leave(names, down & before)


def _leave(names: Sequence[str], down: set[str]) -> None:
    """End this process if an interface is down: its other threads may wait for ranks that can't answer."""
    if down:
        os._exit(DOWN + min(map(names.index, down)))


def _down(names: Sequence[str]) -> set[str]:
    """Interfaces that are gone, not up, or not connected at their other end."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        return {name for name in names if not _flags(name, probe) & IFF_RUNNING}


def _flags(interface: str, probe: socket.socket) -> int:
    with suppress(OSError):
        answer = fcntl.ioctl(probe, SIOCGIFFLAGS, struct.pack("16s16x", interface.encode()))
        return int(struct.unpack("16xH14x", answer)[0])
    return 0

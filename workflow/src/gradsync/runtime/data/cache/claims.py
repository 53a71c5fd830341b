"""Who of several processes makes an entry that all want: the first one; the others wait for it, but not for ever."""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLAIMS = 256  # files: two samples seldom share one
LONGEST_SECONDS = 10.0  # that one waits for another, which may have been stopped
POLL_SECONDS = 0.001


@contextmanager
def claimed(folder: Path, key: str) -> Iterator[None]:
    """Make the entry `key` in the block, alone among all threads and processes that share the folder.

    The kernel drops the claim of a process that dies (flock(2)). After `LONGEST_SECONDS`, and if the folder can't be
    written, the block runs without a claim: then an entry is made twice, which changes nothing.
    """
    try:
        handle = os.open(folder / f"claim-{zlib.crc32(key.encode()) % CLAIMS:02x}", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield
        return
    try:
        _wait(handle)
        yield
    finally:
        os.close(handle)


def _wait(handle: int) -> None:
    latest = time.monotonic() + LONGEST_SECONDS
    while time.monotonic() < latest:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(POLL_SECONDS)

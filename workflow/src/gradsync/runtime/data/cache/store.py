"""Entries of bytes in a folder: bounded, checked when they are read, shared by all processes that open the folder.

An entry is a file, `FOLDER/abc/abc..`: its checksum and length, then its bytes. It appears whole or not at all, so that
readers need no lock, and one that is evicted while it is read is still read to its end. The file `TOTAL` has the bytes
that all entries take, and is locked while it is changed (flock(2)): a process that dies keeps no lock.

A store never ends a run. If its folder can't be written (full, read-only, removed), it says so once, keeps what it has,
and counts the entries that it did not take.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import secrets
import struct
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gradsync.files import disk

HEADER = struct.Struct("<8sIQ")  # MAGIC, CRC-32 of the bytes, their number
MAGIC = b"gradsyn1"
TOTAL = "total"  # bytes of all entries: 8 bytes, little-endian
PAGE = 4096  # file systems give room to a file in pages
PENDING = "pending-"  # begins the name of a file that is no entry yet
PENDING_SECONDS = 3600.0  # after which its writer must have died
FAN = 3  # hexadecimal digits of a subfolder's name: a victim is looked for among few names


class Store:
    """The entries of a folder, of `most` bytes together at the most.

    What does not fit takes the place of others, which are evicted at random: an epoch comes back to a sample after
    all others, so that the one that was used longest ago is the next to be wanted. `counts` has, for this process,
    hits, heals (damaged entries that were removed), evictions and refusals (entries that were not taken).
    """

    def __init__(self, folder: Path, most: float, what: str):
        self.folder, self.most, self.what = folder, most, what
        self.counts: Counter[str] = Counter()
        self.writable = True
        self._counting = threading.Lock()  # threads share `counts`
        self._random = random.Random(secrets.randbits(64))  # whatever else draws random numbers

    def prepare(self) -> None:
        """Make the folder, and count what earlier runs have left there: to be called once before the folder is used."""
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            for pending in self.folder.glob(f"{PENDING}*"):
                with suppress(FileNotFoundError):
                    if time.time() - pending.stat().st_mtime > PENDING_SECONDS:
                        pending.unlink()
            with self._total() as total:
                total.value = sum(_room(file.stat().st_size) for part in self._parts() for file in part.iterdir())

    def get(self, key: str) -> memoryview | None:
        """The bytes of an entry; None if it is not there, or damaged: then it is removed."""
        path = self._path(key)
        try:
            content = memoryview(path.read_bytes())
        except OSError:
            return None
        entry = content[HEADER.size :]
        if content[: HEADER.size] == _header(entry):
            self._count("hits")
            return entry
        self._count("heals")
        with self._writing(), self._total() as total:
            total.value -= self._remove(path)
        return None

    def put(self, key: str, *parts: bytes | memoryview) -> None:
        """Take an entry, the parts of which lie one after the other; one that is there already stays."""
        content = b"".join(parts)
        path, need = self._path(key), _room(HEADER.size + len(content))
        if not self.writable or need > self.most:
            self._count("refusals")
            return
        kept = first = False
        with self._writing():
            path.parent.mkdir(exist_ok=True)
            with self._total() as total:
                if path.exists():
                    return
                while total.value + need > self.most:
                    total.value -= self._evict(total.value)
                total.value += need
            try:
                first = self._write(path, content)
                kept = True
            finally:
                if not first:
                    with self._total() as total:
                        total.value -= need
        if not kept:
            self._count("refusals")

    def _write(self, path: Path, content: bytes) -> bool:
        """Make an entry; False if another process has made it meanwhile."""
        temporary = self.folder / f"{PENDING}{secrets.token_hex(8)}"
        try:
            with temporary.open("xb", buffering=0) as file:
                for part in (_header(content), content):
                    if file.write(part) < len(part):  # a limit was reached in the middle
                        raise OSError(errno.ENOSPC, "")
            with self._total():
                first = not path.exists()
                if first:
                    temporary.rename(path)
            if not first:
                temporary.unlink()
            return first
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def _evict(self, total: int) -> int:
        """Remove an entry at random; its bytes, or all that were counted if there is none."""
        parts = list(self._parts())
        self._random.shuffle(parts)
        for part in parts:
            with suppress(OSError):
                if files := list(part.iterdir()):
                    self._count("evictions")
                    return self._remove(self._random.choice(files))
        return total

    @staticmethod
    def _remove(path: Path) -> int:
        """Remove an entry; the bytes that it took, 0 if another process was first."""
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return 0
        return _room(size)

    def _parts(self) -> Iterator[Path]:
        return (path for path in self.folder.iterdir() if len(path.name) == FAN)

    def _path(self, key: str) -> Path:
        return self.folder / key[:FAN] / key

    def _count(self, what: str) -> None:
        with self._counting:
            self.counts[what] += 1

    @contextmanager
    def _total(self) -> Iterator[_Total]:
        """The bytes of all entries, to be changed by this thread alone."""
        handle = os.open(self.folder / TOTAL, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            total = _Total(int.from_bytes(os.pread(handle, 8, 0), "little"))
            try:
                yield total
            finally:
                os.pwrite(handle, max(0, total.value).to_bytes(8, "little"), 0)
        finally:
            os.close(handle)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """What goes wrong in the block ends the writing, but not the run."""
        try:
            yield
        except OSError as error:
            with self._counting:
                first, self.writable = self.writable, False
            if first:
                reason = disk.reason(error, self.folder)
                print(f"warning: {self.what} takes no more: {self.folder}: {reason}", file=sys.stderr, flush=True)


class _Total:
    def __init__(self, value: int):
        self.value = value


def _header(content: bytes | memoryview) -> bytes:
    return HEADER.pack(MAGIC, zlib.crc32(content), len(content))


def _room(size: int) -> int:
    return -(-size // PAGE) * PAGE

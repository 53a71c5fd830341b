"""What a run keeps for a while: temporary folders, and memory that its ranks share.

Their maker locks both as long as it lives (flock(2)), so that the next run on this machine recognises those of killed
runs and removes them.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gradsync.files import disk

PREFIX = "gradsync-"
OWNER = ".owner"  # in a temporary folder: its lock, and the machine that can judge it
MEMORY = Path("/dev/shm")


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder below `parent` (None: the system's temporary folder), and remove it afterwards.

    Folders of killed runs are removed first. Raises InputError if none can be made.
    """
    place = parent or Path(tempfile.gettempdir())
    sweep(place)
    with disk.explain_errors(place):
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    try:
        with disk.explain_errors(folder):
            owner = own(folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)  # while it is owned: nobody is to take it for abandoned
            os.close(owner)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def own(folder: Path) -> int:
    """Have this process own a temporary folder as long as the returned handle is open."""
    # the file has another name until it is locked: nobody may take it for that of a dead run
    owner = os.open(folder / f"{OWNER}.new", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    fcntl.flock(owner, fcntl.LOCK_EX)
    os.write(owner, socket.gethostname().encode())
    os.rename(folder / f"{OWNER}.new", folder / OWNER)
    return owner


def shared_file(size: int) -> tuple[int, str]:
    """A file of `size` zero bytes in memory, for all ranks of this machine: (its open handle, its path).

    It is locked as long as the handle is open; the caller removes it. Raises OSError if there is no room.
    """
    sweep(MEMORY)
    path = MEMORY / f"{PREFIX}{secrets.token_hex(8)}"
    handle = os.open(MEMORY, os.O_TMPFILE | os.O_RDWR, 0o600)  # it has no name until it is locked
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        os.posix_fallocate(handle, 0, size)  # a full memory is an error here, not a killed rank later
        # only with a folder, which an absolute path does not need, Python follows the link to the file (linkat(2))
        os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle)
    except BaseException:
        os.close(handle)
        raise
    return handle, str(path)


def sweep(place: Path, prefix: str = PREFIX) -> list[str]:
    """Remove what killed runs of this user have left directly below `place`; returns the paths."""
    removed = []
    for path in sorted(place.glob(f"{prefix}*")):
        with suppress(OSError):
            if path.lstat().st_uid == os.geteuid() and not path.is_symlink() and _abandoned(path):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                removed.append(str(path))
    return removed


def sweep_all() -> list[str]:
    """Remove what killed runs have left in memory and among the system's temporary files; returns the paths."""
    return [*sweep(MEMORY), *sweep(Path(tempfile.gettempdir()))]


def _abandoned(path: Path) -> bool:
    """Whether the maker of `path`, on this machine, is gone; raises OSError for what is none of ours."""
    lock = path / OWNER if path.is_dir() else path
    with lock.open("rb") as owner:
        if path.is_dir() and owner.read(256).decode(errors="replace") != socket.gethostname():
            return False
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True

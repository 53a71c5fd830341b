"""One run per folder: the run that writes into it holds a lock, which the kernel takes back however it ends (flock(2)).

The file says who holds it: host, process, start, Slurm job. A lock whose holder has died is free, whatever it says. On
network file systems that keep no locks between machines (Lustre mounted with localflock, say) a lock of another host
is free as well while its holder lives; that host is therefore named whenever its lock is taken over.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from gradsync.errors import InputError
from gradsync.files import disk
from gradsync.lifetimes import lifeline

NAME = ".running"
LEAVING_SECONDS = 2 * lifeline.GRACE_SECONDS  # in which a holder that has lost its launcher ends
POLL_SECONDS = 0.1
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of a file system that has none


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of `folder`, which is made if it is missing; the lock tells others `what` runs there.

    Raises InputError at once if another run holds it, with who that is, or if nothing can be written there. A holder
    that is about to end, since its launcher was killed, is waited for.
    """
    new_folders = [each for each in (folder, *folder.parents) if not each.exists()]
    with disk.explain_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = _take(folder)
    with lock:
        _warn_of_takeover(_read(lock), folder)
        try:
            with disk.explain_errors(folder):
                _write(lock, what)
            yield
        finally:
            with suppress(OSError):
                os.unlink(folder / NAME)
                for each in new_folders:  # a new folder stays only if something was written there
                    each.rmdir()


def holder(file: Path) -> dict[str, Any]:
    """The entry of a lock's holder; empty if the lock is free."""
    with suppress(OSError), file.open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(lock)
    return {}


def _take(folder: Path) -> IO[str]:
    deadline = time.monotonic() + LEAVING_SECONDS
    while True:
        try:
            lock = open(folder / NAME, "a+")  # noqa: SIM115  held as long as it is open
        except FileNotFoundError:  # a holder has left, and removed the folder that it had made
            folder.mkdir(parents=True, exist_ok=True)
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            entry = _read(lock)
            lock.close()
            if not _leaving(entry) or time.monotonic() > deadline:
                raise InputError(_refusal(folder, entry)) from None
            time.sleep(POLL_SECONDS)
            continue
        except OSError as error:
            if error.errno not in NO_LOCKS:
                lock.close()
                raise
            print(f"gradsync: {folder}: its file system has no locks: start no second run there", file=sys.stderr)
            return lock
        if _is_same_file(lock, folder / NAME):
            return lock
        lock.close()  # whoever held it has removed it meanwhile


def _is_same_file(lock: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _leaving(entry: dict[str, Any]) -> bool:
    leader = lifeline.Leader.of({lifeline.VARIABLE: str(entry.get("leader", ""))})
    return leader is not None and leader.leaving()


def _refusal(folder: Path, entry: dict[str, Any]) -> str:
    host, process = entry.get("host", "a host"), entry.get("process", "?")
    end = f"scancel {entry['job']}" if entry.get("job") else f"kill {process}, on {host}"
    return (
        f"{folder}: another run writes there: {entry.get('what', 'gradsync')} on {host}, process {process}, since "
        f"{entry.get('since', 'just now')}: wait for it, end it ({end}), or take another folder"
    )


def _warn_of_takeover(entry: dict[str, Any], folder: Path) -> None:
    """Say who held the lock until he died, if that was on another host."""
    if entry and entry.get("host") != socket.gethostname():
        print(
            f"gradsync: {folder}: taken over from {entry.get('what')} on {entry.get('host')}, process "
            f"{entry.get('process')}, which holds it no more (where the file system keeps no locks between machines, "
            "look whether it lives)",
            file=sys.stderr,
            flush=True,
        )


def _read(lock: IO[str]) -> dict[str, Any]:
    with suppress(ValueError, OSError):
        lock.seek(0)
        entry = json.loads(lock.read(4096))
        if isinstance(entry, dict):
            return entry
    return {}


def _write(lock: IO[str], what: str) -> None:
    entry = {
        "what": what,
        "host": socket.gethostname(),
        "process": os.getpid(),
        "leader": str(lifeline.Leader.this()),
        "job": os.environ.get("SLURM_JOB_ID", ""),
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    os.ftruncate(lock.fileno(), 0)
    os.write(lock.fileno(), json.dumps(entry).encode())  # not kept in a buffer that closing would write again

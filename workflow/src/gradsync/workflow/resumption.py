"""After a run of Snakemake was killed, the same command goes on: its locks are no longer held, its jobs have ended.

Snakemake keeps its locks in files, which outlive a run that is killed. Each run therefore also holds a lock that the
kernel takes back with the process: a run that finds no such lock removes the files that dead runs have left. While
another run of the same results lives, a new one is refused, with who that is. What dead runs were making is made again
by the setting `rerun-incomplete` in profiles/default.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from gradsync.files import disk
from gradsync.lifetimes import leftovers, lifeline

MUTEX, RUNS = "gradsync.starting", "gradsync.runs"  # below .snakemake
Locking = Callable[[Any], AbstractContextManager[None]]


def install(workflow: Any) -> None:
    """Have this run of Snakemake take over what killed runs have left; a second call does nothing more.

    What this run starts on this machine ends with it; what it submits elsewhere does not.
    """
    from snakemake import persistence
    from snakemake.exceptions import LockException, WorkflowError

    lifeline.follow(at_once=True)  # this may be a part of a run that another Snakemake has started
    os.environ.update(lifeline.led(os.environ))
    _own_temporary(workflow)
    if not workflow.is_main_process:
        return
    kind = getattr(persistence, "PersistenceBase", None) or persistence.Persistence  # of earlier 9.x
    if not hasattr(kind.lock, "taking_over"):
        kind.lock = taking_over(kind.lock, LockException, WorkflowError)


def _own_temporary(workflow: Any) -> None:
    """Own Snakemake's temporary folder, so that the next run can tell that it is a killed run's, and remove it."""
    folder = Path(workflow.snakemake_tmp_dir)
    with suppress(OSError):
        leftovers.sweep(folder.parent, "snakemake")
        if not (folder / leftovers.OWNER).exists():
            leftovers.own(folder)  # open as long as this process lives


def taking_over(lock: Locking, refused: type[Exception], refusal: type[Exception]) -> Locking:
    """Snakemake's `lock`, which first removes the locks of dead runs; raises `refusal` in place of `refused`."""

    @contextmanager
    def locked(persistence: Any) -> Iterator[None]:
        folder = Path(persistence.path)
        try:
            mutex, runs = open(folder / MUTEX, "a"), open(folder / RUNS, "a+")  # noqa: SIM115
        except OSError as error:
            raise refusal(str(disk.refusal(error, folder))) from None
        with runs:
            with mutex:
                with suppress(OSError):  # on a file system without locks, Snakemake's own are all that there is
                    _take_over(mutex, runs, folder)
                own_lock = lock(persistence)
                try:
                    own_lock.__enter__()
                except refused:
                    raise refusal(_refusal_message(runs, folder)) from None
            try:
                yield
            finally:
                own_lock.__exit__(None, None, None)

    locked.taking_over = True  # type: ignore[attr-defined]
    return locked


def _take_over(mutex: IO[str], runs: IO[str], folder: Path) -> None:
    fcntl.flock(mutex, fcntl.LOCK_EX)  # one run at a time looks, and writes Snakemake's own locks
    try:
        fcntl.flock(runs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # another run lives: what it has locked stays
        pass
    else:
        shutil.rmtree(folder / "locks", ignore_errors=True)
        (folder / "locks").mkdir()
        os.ftruncate(runs.fileno(), 0)
    fcntl.flock(runs, fcntl.LOCK_SH)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    entry = {"host": socket.gethostname(), "process": os.getpid(), "since": now}
    os.write(runs.fileno(), json.dumps(entry).encode() + b"\n")


def _refusal_message(runs: IO[str], folder: Path) -> str:
    """The message that names who may hold the lock; processes of this host that have ended are left out."""
    runs.seek(0)
    entries = [json.loads(line) for line in runs]
    host = socket.gethostname()
    others = [
        f"process {each['process']} on {each['host']}, since {each['since']}"
        for each in entries
        if each["process"] != os.getpid() and (each["host"] != host or lifeline.started(each["process"]) is not None)
    ]
    who = "; ".join(others) or "one that holds no lock of ours"
    return (
        f"another Snakemake makes the same results in {folder.parent.resolve()} ({who}): wait for it, or end it; where "
        "none lives, snakemake --unlock"
    )

"""A process ends with the process that started it, however that one ended: nothing runs on that nobody waits for.

A launcher names itself in the environment of what it starts, and each command of ours below it, whatever shells stand
between, waits in a thread for its end (pidfd_open(2)). A rank is killed at once, since its checkpoints are whole at any
moment; a launcher is asked first (SIGTERM), so that it ends its own ranks and removes the testbed that it has made. A
pipe would do as much, but what Snakemake starts keeps no file open that it doesn't know.

A name is valid only at one place: the machine since it started, its view of processes, and the Slurm job. A job that
runs on a cluster is no child of the process that submitted it, and lives on without it. What a job runs ends with the
slurmstepd above it: srun waits for ever for tasks that have lost theirs.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

VARIABLE = "GRADSYNC_ENDS_WITH"
GRACE_SECONDS = 60.0  # in which a launcher ends its ranks and removes its testbed
STEP_MANAGER = "slurmstepd"  # Slurm's own process above each batch script and each task
POLL_SECONDS = 0.5  # if the kernel doesn't report a process's end (before Linux 5.3)
PR_SET_PDEATHSIG = 1  # prctl(2)
PR_SET_CHILD_SUBREAPER = 36


class Leader(NamedTuple):
    """A process that others end with: its place, its number, and its start in clock ticks since boot."""

    place: str
    pid: int
    started: int

    @classmethod
    def this(cls) -> Leader:
        """This process."""
        return cls(_place(), os.getpid(), started(os.getpid()) or 0)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Leader | None:
        """The leader that `environment` names; None if it names none, or one elsewhere."""
        try:
            place, pid, began = environment.get(VARIABLE, "").rsplit("/", 2)
            leader = cls(place, int(pid), int(began))
        except ValueError:
            return None
        return leader if leader.place == _place() else None

    def gone(self) -> bool:
        """Whether it has ended; another process may have its number by now."""
        return started(self.pid) != self.started

    def leaving(self) -> bool:
        """Whether it has ended, is just ending (what it holds open is closed last), or will end, as an orphan."""
        return self.gone() or not _environment(self.pid) or orphaned(self.pid)

    def __str__(self) -> str:
        return f"{self.place}/{self.pid}/{self.started}"


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it has ended, whether or not its parent knows.

    It tells the process from a later one with the same number.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def led(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` for what this process starts and what shall end with it."""
    return {**environment, VARIABLE: str(Leader.this())}


def orphaned(pid: int) -> bool:
    """Whether a process that this one should have ended with is gone: this one is about to end, or hangs."""
    visited = set()
    while pid not in visited:
        visited.add(pid)
        leader = Leader.of(_environment(pid))
        if leader is None:
            return False
        if leader.gone():
            return True
        pid = leader.pid
    return False


def _environment(pid: int) -> dict[str, str]:
    """The environment that a process was started with; empty if it is ending."""
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    return dict(entry.decode(errors="replace").partition("=")[::2] for entry in content if entry)


def follow(*, at_once: bool) -> None:
    """End with the leader that the environment names, and with the step of Slurm that this process belongs to.

    This process is killed `at_once`, as a rank is, or asked first and killed later.
    """
    leader, step = Leader.of(os.environ), _step()
    if leader is not None and leader.pid == os.getpid():
        leader = None
    if leader is not None and at_once and os.getppid() == leader.pid:  # a stopped rank has no thread that could notice
        killed_with_parent(signal.SIGKILL)()
    for each in (leader, step):
        if each is None:
            continue
        threading.Thread(target=_end_with, args=(each, at_once), name="lifeline", daemon=True).start()


def _step() -> Leader | None:
    """The nearest slurmstepd above this process; None outside of Slurm's jobs."""
    pid = os.getppid() if "SLURM_JOB_ID" in os.environ else 0
    while pid > 1:
        try:
            name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            return None
        if name == STEP_MANAGER:
            return Leader(_place(), pid, int(fields.split()[19]))
        pid = int(fields.split()[1])
    return None


@cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def killed_with_parent(number: int) -> Callable[[], None]:
    """A function for `preexec_fn`: the new process gets a signal when the thread that started it ends (prctl(2))."""
    library = _library()  # it is loaded now: between fork and exec nothing may be

    def ask() -> None:
        library.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)

    return ask


@contextmanager
def adopting() -> Iterator[None]:
    """Meanwhile processes below this one become its children when their own parents end (prctl(2)).

    Raises OSError if the kernel refuses.
    """
    _adopt(1)
    try:
        yield
    finally:
        _adopt(0)


def _adopt(wanted: int) -> None:
    if _library().prctl(PR_SET_CHILD_SUBREAPER, wanted, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), "PR_SET_CHILD_SUBREAPER")


def _end_with(leader: Leader, at_once: bool) -> None:
    _wait(leader)
    if not at_once:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _wait(leader: Leader) -> None:
    """Wait until it is gone."""
    with suppress(OSError, AttributeError):  # it is gone, or the kernel has no such call: the loop below decides
        handle = os.pidfd_open(leader.pid)
        try:
            if not leader.gone():  # the handle is that of the leader, not of a later process
                poll = select.poll()
                poll.register(handle, select.POLLIN)
                poll.poll()
                return
        finally:
            os.close(handle)
    while not leader.gone():
        time.sleep(POLL_SECONDS)


@cache
def _place() -> str:
    """The place in which process numbers mean the same: machine since its start, view of processes, Slurm job."""
    boot, space = "", ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with suppress(OSError):
        space = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{boot}/{space}/{os.environ.get('SLURM_JOB_ID', '')}"

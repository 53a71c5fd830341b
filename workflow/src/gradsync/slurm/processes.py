"""Processes that are ours to end: they are known by id *and* start time, so that a reused id is never hit (proc(5))."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process of this machine; `started` is its start in clock ticks since boot, `name` the program's name."""

    name: str
    pid: int
    started: int

    def alive(self) -> bool:
        """Whether this very process (not another one with its id) is there and not a zombie."""
        status = _stat(self.pid)
        return status is not None and status[1] == self.started and status[0] != "Z"


def identify(name: str, pid: int) -> Process:
    """The process `pid`, which was just started; if it has ended already, it has start 0 and is not alive."""
    status = _stat(pid)
    return Process(name, pid, status[1] if status else 0)


def load(file: Path) -> list[Process]:
    """The processes that `save` wrote; none if it wrote nothing."""
    try:
        return [Process(**entry) for entry in json.loads(file.read_text())]
    except FileNotFoundError:
        return []


def save(started: list[Process], file: Path) -> None:
    """Write all at once or not at all: whoever ends the processes must find them."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps([asdict(process) for process in started], indent=1))
    fresh.replace(file)


def end(processes: Iterable[Process], grace_seconds: float) -> list[Process]:
    """Ask processes to end, kill them after `grace_seconds`, reap our own children; returns those that did not end."""
    left = [process for process in processes if process.alive()]
    for number, patience in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 5.0)):
        for process in left:
            _signal(process, number)
        deadline = time.monotonic() + patience
        while left and time.monotonic() < deadline:
            time.sleep(0.02)
            left = [process for process in left if not _reaped(process) and process.alive()]
    return left


def steps(folder: Path) -> list[Process]:
    """Job steps (slurmstepd) of the nodes whose logs lie below `folder`, and everything that those steps started."""
    parents = {pid: int(fields[2]) for pid in _pids() if (fields := _fields(pid))}
    pids = {pid for pid in parents if _name(pid) == "slurmstepd" and _writes_below(pid, folder)}
    while grown := {pid for pid, parent in parents.items() if parent in pids} - pids:
        pids |= grown
    return _others(pids)


def orphans(configuration: Path) -> list[Process]:
    """Processes of jobs of this slurm.conf's Slurm that outlived their step: their environment names job and Slurm."""
    wanted = f"SLURM_CONF={configuration}".encode()
    pids = set()
    for pid in _pids():
        try:
            environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment and any(line.startswith(b"SLURM_JOB_ID=") for line in environment):
            pids.add(pid)
    return _others(pids)


def _others(pids: set[int]) -> list[Process]:
    """The processes of `pids` without this one and its ancestors: a job may call `stop` itself."""
    ancestor = os.getpid()
    while ancestor > 1:
        pids.discard(ancestor)
        fields = _fields(ancestor)
        ancestor = int(fields[2]) if fields else 0
    return [process for pid in sorted(pids) if (process := identify(_name(pid), pid)).alive()]


def _signal(process: Process, number: int) -> None:
    if process.alive():
        try:
            os.kill(process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def _reaped(process: Process) -> bool:
    try:
        return os.waitpid(process.pid, os.WNOHANG)[0] == process.pid
    except ChildProcessError:  # another process started it
        return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def _name(pid: int) -> str:
    try:
        return (PROC / str(pid) / "comm").read_text().strip()
    except OSError:
        return ""


def _fields(pid: int) -> list[str]:
    """Fields of proc(5)'s `stat` from the second on; the name is one field, whatever it holds; [] without a process."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return []
    return ["", *text.rpartition(")")[2].split()]


def _stat(pid: int) -> tuple[str, int] | None:
    """State letter and start time in ticks since boot."""
    fields = _fields(pid)
    return (fields[1], int(fields[20])) if fields else None


def _writes_below(pid: int, folder: Path) -> bool:
    try:
        return any(os.readlink(entry).startswith(f"{folder}{os.sep}") for entry in (PROC / str(pid) / "fd").iterdir())
    except OSError:
        return False

"""Processes that are ours to end: told by process id *and* start time, so that a reused id is never hit (proc(5))."""

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
        found = _stat(self.pid)
        return found is not None and found[1] == self.started and found[0] != "Z"


def seen(name: str, pid: int) -> Process:
    """The process `pid`, which was just started; one that has ended already has start 0 and is not alive."""
    found = _stat(pid)
    return Process(name, pid, found[1] if found else 0)


def load(file: Path) -> list[Process]:
    """What `save` wrote; none if it wrote nothing."""
    try:
        return [Process(**entry) for entry in json.loads(file.read_text())]
    except FileNotFoundError:
        return []


def save(started: list[Process], file: Path) -> None:
    """All at once or not at all: who ends them must find them."""
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps([asdict(process) for process in started], indent=1))
    fresh.replace(file)


def end(processes: Iterable[Process], grace_seconds: float) -> list[Process]:
    """Ask them to end, insist after `grace_seconds`, reap our own children; returns those that would not end."""
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
    found = {pid for pid in parents if _name(pid) == "slurmstepd" and _writes_below(pid, folder)}
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return _others(found)


def orphans(configuration: Path) -> list[Process]:
    """Processes of jobs of the Slurm of this slurm.conf that outlived their step: their environment says both."""
    wanted = f"SLURM_CONF={configuration}".encode()
    found = set()
    for pid in _pids():
        try:
            environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if wanted in environment and any(line.startswith(b"SLURM_JOB_ID=") for line in environment):
            found.add(pid)
    return _others(found)


def _others(pids: set[int]) -> list[Process]:
    """Without this process and its ancestors: a job may call `stop` itself."""
    own = os.getpid()
    while own > 1:
        pids.discard(own)
        fields = _fields(own)
        own = int(fields[2]) if fields else 0
    return [process for pid in sorted(pids) if (process := seen(_name(pid), pid)).alive()]


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
    """Fields of proc(5)'s `stat` from the second on, the name as one whatever it holds; [] where there is none."""
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

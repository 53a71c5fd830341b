"""Processes of a run by what they are, how each is killed, and what a run has left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gradsync.lifetimes import lifeline
from gradsync.testbed import namespaces
from left_in_memory import left_in_memory

MARK = "GRADSYNC_KILLED_RUN"  # in the environment of all that a run starts


class Process(NamedTuple):
    """A process of a run; `rank` is "" if it is no rank, `job` if it is not Slurm's."""

    pid: int
    rank: str
    job: str
    command: str


def of(mark: str) -> list[Process]:
    """The processes of a run that live, whoever their parents are now."""
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                entries = (entry / "environ").read_bytes().split(b"\0")
                if f"{MARK}={mark}".encode() in entries and lifeline.started(int(entry.name)) is not None:
                    environment = dict(each.decode(errors="replace").partition("=")[::2] for each in entries)
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    rank = _rank(environment, (entry / "comm").read_text())
                    processes.append(Process(int(entry.name), rank, environment.get("SLURM_JOB_ID", ""), command))
    return sorted(processes)


def _rank(environment: dict[str, str], name: str) -> str:
    """The rank's own number, which is in its name if it was forked, or that of a task of a step of Slurm."""
    if forked := re.fullmatch(r"rank (\d+)\n", name):
        return forked[1]
    return environment.get("RANK") or (environment.get("SLURM_PROCID", "") if "SLURM_STEP_ID" in environment else "")


def strike(victim: str, launcher: int, mark: str) -> bool:
    """Kill a part of a run, or cut its link; False while there is none."""
    if victim == "link":
        return _cut(launcher)
    if victim in ("launcher", "submitter"):
        chosen = [launcher]
    elif victim in ("training", "shell"):
        trains = [each for each in of(mark) if "-m gradsync train" in each.command and not each.rank]
        chosen = [each.pid for each in trains if ("bash -c" in each.command) is (victim == "shell")]
    else:
        chosen = [each.pid for each in of(mark) if f"rank {each.rank}" == victim]
    for pid in chosen[:1]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
    return False


def end_all(mark: str) -> None:
    """Kill whatever lives of a run, by its own process id."""
    for each in of(mark):
        with suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGKILL)


def in_memory() -> list[str]:
    """Shared memory that runs have given a name, and left."""
    return [*map(str, left_in_memory())]


def networks(launcher: int | None = None) -> list[str]:
    """Namespaces of all testbeds, or of the one that a launcher has made."""
    try:
        listing = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    names = [line.split()[0] for line in listing.splitlines() if re.match(namespaces.NAME, line.split()[0])]
    return [name for name in names if launcher is None or name.startswith(f"{namespaces.PREFIX}-{launcher}-")]


def _cut(launcher: int) -> bool:
    hosts = [name for name in networks(launcher) if re.search(r"-h\d+$", name)]
    return any(
        not subprocess.run(["ip", "-n", host, "link", "set", "rail0", "down"], capture_output=True).returncode
        for host in hosts[:1]
    )

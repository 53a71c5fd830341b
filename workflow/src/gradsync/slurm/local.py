"""A real Slurm on one machine, for tests and to try the profile: munged, slurmctld and a slurmd for each node.

It runs as the calling user, root or not; everything lies below one folder; each process is known by its id and start
time.
"""

from __future__ import annotations

import fcntl
import getpass
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gradsync.errors import InputError, RunError
from gradsync.slurm import installed, local_files, machine, processes
from gradsync.slurm.local_files import Folder, Shape
from gradsync.slurm.processes import Process

FOLDER = Path("results/slurm")
READY_SECONDS = 300.0  # one that ends is seen at once
# The states of a node whose daemon has registered; jobs may come in at once.
UP = {"idle", "mixed", "allocated", "completing"}


@dataclass(frozen=True)
class Running:
    """A local Slurm: its slurm.conf, its processes, and each node with its state as sinfo names it."""

    configuration: Path
    processes: list[Process]
    nodes: dict[str, str]


def start(folder: Path = FOLDER, shape: Shape | None = None) -> Running:
    """Start one in `folder` and wait until all nodes are idle.

    Raises InputError if one runs there already, a program is missing, or the folder's path is too long for sockets.
    Raises RunError if a daemon ended or the nodes did not come up; what was started is ended again.
    """
    shape = shape or Shape(memory=machine.memory_each(Shape.nodes))
    place = local_files.at(folder)
    local_files.refuse_others(place)
    programs = {name: installed.program(name) for name in installed.PACKAGES}
    with _locked(place):
        alive = [process for process in processes.load(place.processes) if process.alive()]
        if alive:
            raise InputError(
                f"a local Slurm already runs in {place.path} ({_names(alive)}): use it with"
                f" `{exports(place.configuration)}`, or end it with `gradsync slurm stop --folder {place.path}`"
            )
        _stop(place)  # what a crash may have left
        for old in (place.state, place.clients, place.path / "spool"):
            shutil.rmtree(old, ignore_errors=True)
        ports = machine.free_ports(1 + shape.nodes)
        clients = {name: path for name in local_files.CLIENTS if (path := installed.find(name))}
        local_files.write(place, shape, ports, getpass.getuser(), clients, machine.address())
        try:
            return _start(place, shape, programs)
        except BaseException:
            _stop(place)
            raise


def stop(folder: Path = FOLDER) -> list[Process]:
    """End what was started in `folder`, its jobs too; returns what was still running, nothing for an unused folder.

    Raises RunError if a process would not end.
    """
    place = local_files.at(folder)
    if not place.processes.exists():
        return []
    with _locked(place):
        return _stop(place)


def status(folder: Path = FOLDER) -> Running:
    """What runs in `folder`; it has no processes if nothing runs there."""
    place = local_files.at(folder)
    alive = [process for process in processes.load(place.processes) if process.alive()]
    return Running(place.configuration, alive, _nodes(place) if alive else {})


def exports(configuration: Path) -> str:
    """The shell command after which Slurm's clients and Snakemake use it."""
    return f'export SLURM_CONF={configuration} PATH={Folder(configuration.parent).clients}:"$PATH"'


def _start(place: Folder, shape: Shape, programs: dict[str, str]) -> Running:
    # Below a private folder munged says that its socket is inaccessible to others, which is as wanted: --force.
    munge = [
        *(programs["munged"], "--foreground", "--force", f"--socket={place.socket}", f"--key-file={place.key}"),
        *(f"--{name}-file={place.path}/munge/{name}" for name in ("pid", "log", "seed")),
    ]
    started: list[Process] = []

    def run(name: str, *command: str) -> None:
        started.append(_daemon(place, name, command))
        processes.save(started, place.processes)

    run("munged", *munge)
    _until(place.socket.exists, started, place, "munged has no socket")
    configuration = ["-D", "-f", str(place.configuration)]
    run("slurmctld", programs["slurmctld"], *configuration)
    for node in shape.names:
        run(node, programs["slurmd"], *configuration, "-N", node)
    nodes: dict[str, str] = {}

    def all_up() -> bool:
        nonlocal nodes
        nodes = _nodes(place)
        return [state in UP for state in nodes.values()].count(True) == shape.nodes

    _until(all_up, started, place, "not all nodes are idle")
    return Running(place.configuration, started, nodes)


def _daemon(place: Folder, name: str, command: Sequence[str]) -> Process:
    with open(place.log(f"{name}.output"), "wb") as output:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=installed.environment(place.configuration),
            start_new_session=True,  # the terminal's Ctrl-C shall not reach it
            cwd=place.path,
        )
    child.returncode = 0  # it outlives this process: no warning when the handle goes
    return processes.identify(name, child.pid)


def _until(reached: Callable[[], bool], started: list[Process], place: Folder, otherwise: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        ended = [process.name for process in started if not process.alive()]
        if not ended and reached():
            return
        if ended or time.monotonic() > deadline:
            name = ended[0] if ended else "slurmctld"
            what = f"{name} ended" if ended else f"{otherwise} after {READY_SECONDS:.0f} s"
            raise RunError(f"the local Slurm in {place.path} did not start: {what}.{_last_words(place, name)}")
        time.sleep(0.1)


def _last_words(place: Folder, name: str) -> str:
    """The last errors, or the last lines, of a daemon's log."""
    for file in (place.log(f"{name}.output"), place.log(name)):
        lines = file.read_text(errors="replace").split("\n") if file.exists() else []
        telling = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()] or lines
        if last := "\n  ".join(line for line in telling[-4:] if line):
            return f" Its log {file} ends with:\n  {last}"
    return ""


def _nodes(place: Folder) -> dict[str, str]:
    """The states of the nodes; none if the controller doesn't answer within 10 s."""
    try:
        answer = subprocess.run(
            [installed.program("sinfo"), "--noheader", "--Node", "--format=%N %T"],
            env=installed.environment(place.configuration),
            capture_output=True,
            text=True,
            timeout=10,
        )
    except subprocess.TimeoutExpired:
        return {}
    return dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if line.strip())


def _stop(place: Folder) -> list[Process]:
    recorded = [process for process in processes.load(place.processes) if process.alive()]
    daemons = [process for process in recorded if process.name != "munged"]
    # Steps end after their daemons, else the controller would queue their jobs again; munged ends last, daemons ask it.
    steps = processes.steps(place.path)
    left = processes.end(daemons, 3.0)
    left += processes.end({*steps, *processes.steps(place.path)}, 1.0)
    jobs = processes.orphans(place.configuration)
    left += processes.end(jobs, 1.0)
    left += processes.end([process for process in recorded if process.name == "munged"], 3.0)
    if left:
        raise RunError(f"these would not end: {_names(left)}")
    place.processes.unlink(missing_ok=True)
    return [*recorded, *steps, *jobs]


def _names(listed: list[Process]) -> str:
    return ", ".join(f"{process.name} {process.pid}" for process in listed)


@contextmanager
def _locked(place: Folder) -> Iterator[None]:
    try:
        place.path.mkdir(parents=True, exist_ok=True)
        lock = open(place.lock, "w")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot write into {place.path} ({error.strerror}): give another --folder") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"a local Slurm is being started or stopped in {place.path}: wait for it") from None
        yield

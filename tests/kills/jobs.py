"""Jobs of a local Slurm: how one is submitted and waited for, what of it is killed, and what Slurm still has of it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from gradsync.slurm import installed, local, machine, processes
from gradsync.slurm.local_files import Folder, Shape
from kills import victims

SUBMITTER, STEP, FORGOTTEN = "submitter", "slurmstepd", "batch slurmstepd"
VICTIMS = (SUBMITTER, "batch script", "launcher", "srun", "rank 0", "rank 1", STEP, FORGOTTEN, "scancel")
REFUSED = "another run writes there"
# waits as Snakemake's executor does, by asking the queue
SUBMIT = """\
job=$(sbatch --parsable --nodes=2 --ntasks=2 --mem=2000 "$1") || exit 1
while [ "$(squeue --noheader --jobs="$job" --format=%i)" ]; do sleep 0.2; done
test "$(squeue --noheader --states=all --jobs="$job" --format=%T)" = COMPLETED
"""


@dataclass(frozen=True)
class Jobs:
    """The jobs of the Slurm that runs in `folder`; nobody else has any there."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a shell after `gradsync slurm start`."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "GRADSYNC_"))}
        path = os.pathsep.join([str(Folder(self.folder).clients), kept["PATH"]])
        return {**kept, "PATH": path, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def left(self) -> list[str]:
        """Jobs in the queue, and steps that run."""
        steps = [f"{each.name} {each.pid}" for each in processes.steps(self.folder)]
        return [*(f"job {number}" for number in self._queued()), *steps]

    def cancel(self) -> None:
        """Cancel all jobs in the queue."""
        for number in self._queued():
            self._ask("scancel", number)

    def strike(self, victim: str, mark: str) -> bool:
        """Kill a part of a job; False while there is none."""
        if victim == "scancel":
            return any(not self._ask("scancel", "--signal=KILL", number).returncode for number in self._queued("R"))
        run = victims.of(mark)
        scripts = [each.pid for each in run if each.command.strip().endswith("/slurm_script")]
        chosen = {
            "batch script": scripts,
            FORGOTTEN: [_parent(pid) for pid in scripts],
            STEP: [_parent(each.pid) for each in run if each.rank == "0"],
            "srun": [each.pid for each in run if _program(each) == "srun"],
            "launcher": [each.pid for each in run if _program(each).startswith("python") and not each.rank],
        }.get(victim) or [each.pid for each in run if f"rank {each.rank}" == victim]
        for pid in chosen[:1]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _queued(self, state: str = "") -> list[str]:
        options = [f"--states={state}"] if state else []
        return self._ask("squeue", "--noheader", "--format=%i", *options).stdout.split()

    def _ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, env=self.environment, capture_output=True, text=True)


@contextmanager
def at_hand(folder: Path) -> Iterator[Jobs | None]:
    """The jobs of a Slurm of two nodes that runs meanwhile; None if its packages are not installed."""
    if any(installed.find(name) is None for name in installed.PACKAGES):
        yield None
        return
    local.start(folder, Shape(nodes=2, cpus=4, memory=machine.memory_each(2)))
    try:
        yield Jobs(folder)
    finally:
        local.stop(folder)


def _program(process: victims.Process) -> str:
    return Path((process.command.split() or [""])[0]).name


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

"""A real local Slurm for tests: its clients, Snakemake on it, what it must not leave behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from gradsync.slurm import installed, local
from gradsync.slurm.local_files import Folder
from gradsync.slurm.processes import Process
from waiting import HANGS_SECONDS

ROOT = Path(__file__).parents[2]
missing = [name for name in installed.PACKAGES if not installed.find(name)]
needs_slurm = pytest.mark.skipif(
    bool(missing), reason=f"no {', '.join(missing)}: install the packages slurm-wlm, munge"
)


@dataclass(frozen=True)
class Slurm:
    """A Slurm that runs in `folder`; `environment` is that of a shell after its `export`."""

    folder: Path
    environment: dict[str, str]

    def ask(self, *command: str) -> str:
        """What a client prints; fails if the client fails."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=HANGS_SECONDS, env=self.environment, cwd=self.folder.parent
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def process(self, name: str) -> Process:
        """A daemon: munged, slurmctld, or a node."""
        return next(process for process in local.status(self.folder).processes if process.name == name)

    def snakemake(self, folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Started in `folder`, which has a Snakefile; what it prints goes into run.log there."""
        with open(folder / "run.log", "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "snakemake", *arguments],
                cwd=folder,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def slurm_in(folder: Path) -> Slurm:
    """The Slurm that runs in `folder`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "GRADSYNC_"))}
    path = os.pathsep.join([str(Folder(folder).clients), str(Path(sys.executable).parent), kept["PATH"]])
    return Slurm(folder, {**kept, "PATH": path, "SLURM_CONF": str(folder / "slurm.conf")})


def left_behind(folder: Path) -> list[str]:
    """Every process whose environment names the folder's slurm.conf, or that has one of its files open."""
    processes = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            environment = (entry / "environ").read_bytes().split(b"\0")
            files = [os.readlink(file) for file in (entry / "fd").iterdir()]
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        named = f"SLURM_CONF={folder}/slurm.conf".encode() in environment
        if status != "Z" and (named or any(file.startswith(f"{folder}/") for file in files)):
            processes.append(f"{entry.name} {command}")
    return processes


def value(text: str, key: str) -> str:
    """`key=value` on a line of its own, as `env` prints it."""
    match = re.search(rf"^{key}=(.*)$", text, re.MULTILINE)
    return match.group(1) if match else ""

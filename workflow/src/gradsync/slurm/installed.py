"""Finds Slurm's and munge's programs on this machine, and makes the environment that a Slurm's clients need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gradsync.errors import InputError

PACKAGES = {"munged": "munge", "slurmctld": "slurm-wlm", "slurmd": "slurm-wlm", "sinfo": "slurm-wlm"}
# Debian keeps daemons where an ordinary user's PATH doesn't look.
SBIN = ("/usr/sbin", "/sbin", "/usr/local/sbin")
# The first lines of a client that `gradsync slurm start` wrote.
OWN_CLIENT = "#!/bin/sh\n# Written by gradsync slurm start.\n"


def program(name: str) -> str:
    """The path of one of PACKAGES. Raises InputError, which names the package, if it is missing."""
    path = find(name)
    if not path:
        raise InputError(
            f"{name} is not installed: a local Slurm needs the packages slurm-wlm and munge ({name} is in"
            f" {PACKAGES[name]}); on Debian or Ubuntu: apt-get install slurm-wlm munge"
        )
    return path


def find(name: str) -> str | None:
    """The path of a program: never a client that a local Slurm wrote, which would call itself or another Slurm's."""
    for entry in [*os.environ.get("PATH", os.defpath).split(os.pathsep), *SBIN]:
        path = shutil.which(name, path=entry) if entry else None
        if path and not _is_own(path):
            return path
    return None


def _is_own(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(OWN_CLIENT)) == OWN_CLIENT.encode()
    except OSError:  # it may be executable but not readable
        return False


def environment(configuration: Path) -> dict[str, str]:
    """This process's environment for the clients and daemons of a Slurm, without variables of another one."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "SBATCH_", "SRUN_"))}
    return {**kept, "SLURM_CONF": str(configuration)}

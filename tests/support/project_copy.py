"""A copy of the project in which a test may run, change and leave what it likes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIED = (
    "Snakefile",
    "README.md",
    "pyproject.toml",
    "config",
    "containers",
    "envs",
    "profiles",
    "reports",
    "slurm",
    "tests",
    "workflow",
)
NOT_PASSED = ("GRADSYNC_EXTERNAL_DATA", "PYTEST_ADDOPTS")


def path_without(hidden: str, folder: Path) -> str:
    """A PATH, kept in `folder`, on which everything is that is on this one, but for one command."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if file.name != hidden and not (folder / file.name).is_symlink():
                (folder / file.name).symlink_to(file)
    return f"{Path(sys.executable).parent}{os.pathsep}{folder}"


class Project:
    """A copy of the project whose own package is the one that runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # byte code goes along: else every process in the copy, which writes none, would compile the package again
        ignored = shutil.ignore_patterns("*.egg-info", "*.sif", "*.log", ".*.parts")
        for name in COPIED:
            source = ROOT / name
            if source.is_symlink():
                shutil.copy(source, folder / name, follow_symlinks=False)
            elif source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignored)
            else:
                shutil.copy(source, folder / name)
        refused = "http://127.0.0.1:9"  # nothing in the copy needs a network
        self.environment = {
            # options of these tests are not those of the tests that one of them runs
            **{key: value for key, value in os.environ.items() if key not in NOT_PASSED},
            **{"http_proxy": refused, "https_proxy": refused, "no_proxy": ""},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(folder / "workflow" / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.folder,
            env=self.environment | environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def snakemake(
        self, *arguments: str, configuration: str = "config/tiny.yaml", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return self.run("snakemake", "--configfile", configuration, "--cores", "2", *arguments, **environment)

    def log(self) -> str:
        """The log of Snakemake's last run, which has what its screen leaves out."""
        return max((self.folder / ".snakemake" / "log").glob("*.snakemake.log")).read_text()

    def write(self, path: str, text: str) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        return target

    def read(self, path: str) -> str:
        return (self.folder / path).read_text()

"""Solve the environment of an image without building it: which torch and NCCL it would get."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gradsync.errors import InputError, RunError
from gradsync.images import environment, failures

SECONDS = 900.0  # an index that hands out whole wheels instead of their metadata is slow


def check(kind: str, project: Path = Path()) -> dict[str, Any]:
    """What pip would install into the image of a kind (cpu, cuda): torch, its build, NCCL, number of packages.

    If the index offers metadata separately, only that is fetched. Raises InputError on a machine that images are not
    for, RunError if no solution exists or torch would be the wrong build.
    """
    pinned = environment(kind, project)
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise InputError(
            f"image {kind}: solved on Linux x86_64 alone; this is {platform.system()} {platform.machine()}"
        )
    with tempfile.TemporaryDirectory(prefix="gradsync-") as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary", ":all:"]
        command += ["--quiet", "--disable-pip-version-check", "--no-input"]
        try:
            solved = subprocess.run(
                [*command, "--report", str(report), "--requirement", str(pinned)],
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            raise RunError(
                f"image {kind}: pip did not solve {pinned} within {SECONDS:.0f} s: try a nearer index"
            ) from None
        if solved.returncode:
            raise RunError(f"image {kind}: {pinned}: {failures.explain(['pip install', *solved.stderr.splitlines()])}")
        packages = {
            each["metadata"]["name"].lower().replace("_", "-"): each["metadata"]["version"]
            for each in json.loads(report.read_text())["install"]
        }
    return judged(kind, packages, str(pinned))


def judged(kind: str, packages: Mapping[str, str], where: str) -> dict[str, Any]:
    """The answer of `check` on solved packages (name -> version); raises RunError if torch is of the wrong build."""
    if "torch" not in packages:
        raise RunError(f"image {kind}: {where} installs no torch: name it there")
    nccl = next((version for name, version in packages.items() if name.startswith("nvidia-nccl")), None)
    build = "cuda" if nccl else "cpu"
    if build != kind:
        raise RunError(
            f"image {kind}: {where} solves to torch {packages['torch']}, a {build.upper()} build: pin torch=="
            "VERSION+cpu for the CPU image and torch===VERSION for the CUDA image, and check pip's index"
        )
    python = platform.python_version()
    return {"kind": kind, "torch": packages["torch"], "nccl": nccl, "packages": len(packages), "python": python}

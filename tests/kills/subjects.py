"""What is killed: small launches, each the same every time.

They run alone, on a testbed, on a full disk, below Snakemake, and as a job of Slurm.
"""

from __future__ import annotations

import csv
import json
import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.plan.workload import Layer, Workload
from gradsync.slurm.launch import Cluster
from gradsync.testbed import privileges
from kills.jobs import SUBMIT, VICTIMS, Jobs
from project_copy import ROOT, Project
from small_disk import small_disks

SIZES = {"dense2.bias": 10, "dense2.weight": 10240, "dense1.bias": 1024, "dense1.weight": 3211264}
SIZES |= {"conv2.bias": 64, "conv2.weight": 51200, "conv1.bias": 32, "conv1.weight": 800}
TRAINING = ["--batch", "8", "--iterations", "40", "--block", "4", "--conformance", "0", "--checkpoint-seconds", "0"]
DISK_BYTES = 160_000_000  # all of a run and two checkpoints
TARGET = "results/tiny/runs/train/lenet5-2/schemes.json"
TINY = """\
version: 1
name: tiny
training:
  - {model: lenet5, ranks: 2, batch: 8, iterations: 40, block: 4, conformance: 0, schemes: [wfbp, mgwfbp], peers: [ddp],
     profile_iterations: 0, checkpoint_seconds: 0}
profiles: {resnet50: {batch: 2, size: 64, iterations: 2}, googlenet: {batch: 2, size: 64, iterations: 2}}
network: {ranks: [2], smallest: 64, largest: 4096}
papers: {mgwfbp: {nodes: [4], gap_nodes: [4, 8], forward_shares: [0.5], bucket_sweep: 2}}
"""


@dataclass
class Subject:
    """A command, the folders in which it runs and writes, and what of it may be killed.

    `victims` are names of `victims.py`, or of `jobs.py`.
    """

    name: str
    command: list[str]
    folder: Path  # of its output
    victims: tuple[str, ...]
    working: Path
    environment: dict[str, str]
    jobs: Jobs | None = None  # if it is a job of Slurm

    def clear(self) -> None:
        """Remove its output, as if it had never run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.name == "workflow":
            shutil.rmtree(self.working / "results", ignore_errors=True)
            shutil.rmtree(self.working / ".snakemake", ignore_errors=True)

    def outcome(self) -> dict[str, Any]:
        """All results that must be the same whatever happened on the way; raises OSError if something is missing."""
        outcome: dict[str, Any] = {"files": _files(self.folder)}
        if self.name == "workflow":
            outcome["state"] = [_files(self.working / ".snakemake" / name) for name in ("locks", "incomplete")]
        for name in json.loads((self.folder / "schemes.json").read_text()):
            result = json.loads((self.folder / name / "result.json").read_text())
            with (self.folder / name / "metrics.csv").open() as file:
                rows = [{key: row[key] for key in row if key != "iteration_seconds"} for row in csv.DictReader(file)]
            outcome[name] = {
                "conformance": result["conformance"],
                "settings": result["settings"],
                "summary": sorted(result["summary"]),
                "repeats": {key: len(values) for key, values in result["samples"].items()},
                "steps": rows,
            }
        return outcome


def every(place: Path, names: list[str] | None = None, jobs: Jobs | None = None) -> list[Subject]:
    """The subjects that this machine can have, or those of them with these names; `jobs`: of a Slurm that runs."""
    subjects = [training(place), master(place)]
    if small_disks():
        subjects.append(on_small_disk(place))
    if not privileges.impossible() and os.geteuid() == 0:
        subjects.append(on_testbed(place))
    if jobs is not None:
        subjects.append(on_slurm(place, jobs))
    if names is None or "workflow" in names:
        subjects.append(workflow(place))
    return [each for each in subjects if names is None or each.name in names]


def training(place: Path) -> Subject:
    """Two plans and stock DDP on two ranks."""
    plans = [_plan(place, "wfbp"), _plan(place, "mgwfbp")]
    return _train(place, "training", plans, ["--peer", "ddp"], ("launcher", "rank 0", "rank 1"))


def master(place: Path) -> Subject:
    """A launch in which rank 0 sums for the others."""
    return _train(place, "master", [_plan(place, "ps_central", 3, collective="ps_central")], [], ("launcher", "rank 0"))


def on_testbed(place: Path) -> Subject:
    """A launch on two hosts with a shaped link, which may be cut."""
    options = ["--testbed", "switch:2", "--rate", "1e10"]
    return _train(place, "testbed", [_plan(place, "wfbp")], options, ("launcher", "rank 0", "rank 1", "link"))


def on_small_disk(place: Path) -> Subject:
    """A disk that is full from some moment on."""
    return _train(place, "disk", [_plan(place, "wfbp")], [], ("disk",))


def on_slurm(place: Path, jobs: Jobs) -> Subject:
    """A job of two nodes, whose launcher has srun start a rank on each."""
    longer = ["--iterations", "120"]  # parts of a job are looked for first, which takes a while
    subject = _train(place, "slurm", [_plan(place, "wfbp")], longer, VICTIMS)
    path = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"  # in which srun finds Python
    script = place / "slurm" / "job"
    script.write_text(f"#!/bin/bash\n{path}\n{Cluster().exported()}\n{shlex.join(subject.command)}\n")
    subject.command = ["sh", "-c", SUBMIT, "sh", str(script)]
    subject.environment = jobs.environment | {"PYTHONPATH": subject.environment["PYTHONPATH"]}
    subject.jobs = jobs
    return subject


def workflow(place: Path) -> Subject:
    """Snakemake, which plans from counted operations and trains."""
    copy = Project(_made(place / "project"))
    copy.write("config/tiny.yaml", TINY)
    arguments = ["--configfile", "config/tiny.yaml", "--cores", "2", TARGET]
    command = [sys.executable, "-m", "snakemake", *arguments]
    victims = ("launcher", "shell", "training", "rank 0", "rank 1")
    return Subject("workflow", command, copy.folder / Path(TARGET).parent, victims, copy.folder, copy.environment)


def _train(place: Path, name: str, plans: list[str], options: list[str], victims: tuple[str, ...]) -> Subject:
    ranks = str(json.loads(Path(plans[0]).read_text())["ranks"])
    command = [sys.executable, "-m", "gradsync", "train", "--ranks", ranks, *TRAINING, "--no-references"]
    command += [part for plan in plans for part in ("--plan", plan)] + options
    command += ["--peers", str(ROOT / "config" / "peers.yaml")]
    folder = _made(place / name) / "output"
    source = {"PYTHONPATH": str(ROOT / "workflow" / "src")}
    return Subject(name, [*command, "--output", str(folder)], folder, victims, place, dict(os.environ) | source)


def _plan(place: Path, name: str, ranks: int = 2, **how: Any) -> str:
    layers = tuple(Layer(name=key, bytes=4 * size, backward_seconds=1e-3) for key, size in SIZES.items())
    workload = Workload(name="lenet5", forward_seconds=1e-3, layers=layers)
    path = place / f"{name}.json"
    scheme = schemes.Scheme(name=name, **({} if how else {"schedule": name}), **how)
    path.write_text(schemes.plan(scheme, workload, Linear(1e-3, 1e-9), ranks, lr=0.02, momentum=0.9).to_json())
    return str(path)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))

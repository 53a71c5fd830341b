"""Snakemake killed in the middle: its jobs end, the same command goes on, and never while another run lives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gradsync.lifetimes import lifeline
from project_copy import Project
from waiting import HANGS_SECONDS, until

TARGET = "results/tiny/profile/network/allreduce.csv"
TINY = """\
version: 1
name: tiny
training: [{model: lenet5, ranks: 2, batch: 8, iterations: 8, block: 4, conformance: 1}]
profiles: {resnet50: {batch: 2, size: 64, iterations: 2}, googlenet: {batch: 2, size: 64, iterations: 2}}
network: {ranks: [2], smallest: 64, largest: 4096}
papers: {mgwfbp: {nodes: [4], gap_nodes: [4, 8], forward_shares: [0.5], bucket_sweep: 2}}
"""
Started = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    copy = Project(tmp_path)
    copy.write("config/tiny.yaml", TINY)
    (tmp_path / "temporary").mkdir()
    copy.environment["TMPDIR"] = str(tmp_path / "temporary")
    return copy


@pytest.fixture
def started(project: Project) -> Iterator[Started]:
    """Snakemake, once a rank of its job runs; a rank that is `held` goes no further, and the job does not end."""
    runs = []

    def start(target: str, *, held: bool = False) -> subprocess.Popen[str]:
        command = ["snakemake", "--configfile", "config/tiny.yaml", "--cores", "2", target]
        with (project.folder / "screen").open("w") as screen:
            run = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=project.folder,
                env=project.environment,
                stdout=screen,
                stderr=screen,
                text=True,
            )
        runs.append(run)
        until(lambda: both(run, held) or run.poll() is not None, lambda: project.read("screen"))
        return run

    def both(run: subprocess.Popen[str], held: bool) -> bool:
        """Whether both ranks are seen at once; as they pass from their stem to the launcher they may not be."""
        seen = ranks(below(run.pid))
        for rank in seen if held else ():
            os.kill(rank, signal.SIGSTOP)
        return len(seen) == 2

    yield start
    for run in runs:
        for pid in [*below(run.pid), run.pid]:
            if lifeline.started(pid) is not None:
                os.kill(pid, signal.SIGKILL)
        run.wait(HANGS_SECONDS)


def below(pid: int) -> list[int]:
    """Processes that a process has started, and those that they have."""
    try:
        direct = [
            int(child)
            for thread in Path(f"/proc/{pid}/task").iterdir()
            for child in (thread / "children").read_text().split()
        ]
    except OSError:
        return []
    return [*direct, *(each for child in direct for each in below(child))]


def ranks(pids: list[int]) -> list[int]:
    """Those of the processes that are ranks, by what they are called."""
    named = []
    for pid in pids:
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("rank "):
                named.append(pid)
    return named


@pytest.mark.deep
def test_after_a_kill_its_jobs_end_and_the_same_command_goes_on(project, started):
    run = started(TARGET, held=True)
    until(lambda: len(ranks(below(run.pid))) == 2)
    jobs = below(run.pid)
    refused = project.snakemake(TARGET)
    assert refused.returncode == 1
    assert f"another Snakemake makes the same results in {project.folder} (process {run.pid} on" in refused.stdout
    assert run.poll() is None  # and it goes on
    run.kill()
    run.wait(HANGS_SECONDS)
    assert list((project.folder / ".snakemake" / "locks").iterdir())  # what plain Snakemake stumbles over
    assert list((project.folder / ".snakemake" / "incomplete").iterdir())
    until(lambda: all(lifeline.started(pid) is None for pid in jobs))
    assert not (project.folder / TARGET).exists()
    temporary = project.folder / "temporary"
    assert len(list(temporary.glob("snakemake*"))) == 1  # that of the killed one
    again = project.snakemake(TARGET)
    assert again.returncode == 0, again.stdout
    assert not list(temporary.glob("snakemake*"))
    assert (project.folder / TARGET).exists()
    assert not (project.folder / ".snakemake" / "locks").exists()


@pytest.mark.deep
def test_one_that_makes_something_else_may_live_beside(project, started):
    run = started(TARGET)
    other = project.snakemake("results/tiny/external/status.json", GRADSYNC_EXTERNAL_DATA="no such folder")
    assert "another Snakemake" not in other.stdout
    assert run.wait(HANGS_SECONDS) == 0, project.read("screen")

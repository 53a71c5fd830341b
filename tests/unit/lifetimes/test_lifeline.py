"""A process ends with its starter, through shells and when stopped; one whose starter is elsewhere lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gradsync.lifetimes import lifeline
from waiting import HANGS_SECONDS, until

FOLLOWER = """
import os, signal, sys
from gradsync.lifetimes import lifeline
lifeline.follow(at_once=sys.argv[1] == "at_once")
print(os.getpid(), flush=True)
while True:
    signal.pause()
"""
ORDERLY = """
import os, pathlib, signal, sys, time
from gradsync.lifetimes import lifeline
def leave(*_):
    pathlib.Path(sys.argv[1]).write_text("removed")
    raise SystemExit(1)
signal.signal(signal.SIGTERM, leave)
lifeline.follow(at_once=False)
print(os.getpid(), flush=True)
while True:
    time.sleep(0.1)
"""
LAUNCHER = """
import os, subprocess, sys
from gradsync.lifetimes import lifeline
child = subprocess.Popen(sys.argv[1:], env=lifeline.led(os.environ))
child.wait()
"""
STEP = """
import pathlib, subprocess, sys
pathlib.Path("/proc/self/comm").write_text("slurmstepd")
subprocess.Popen(sys.argv[1:]).wait()
"""
Launched = Callable[..., tuple[subprocess.Popen[str], int]]


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    """A launcher that has started a command, and the process id that the command prints."""
    monkeypatch.delenv(lifeline.VARIABLE, raising=False)
    all_of_them: list[tuple[subprocess.Popen[str], int]] = []

    def start(*command: str, program: str = LAUNCHER, **environment: str) -> tuple[subprocess.Popen[str], int]:
        launcher = subprocess.Popen(
            [sys.executable, "-c", program, *command], stdout=subprocess.PIPE, text=True, env=os.environ | environment
        )
        assert launcher.stdout is not None
        all_of_them.append((launcher, int(launcher.stdout.readline())))
        return all_of_them[-1]

    yield start
    for launcher, pid in all_of_them:
        launcher.kill()
        launcher.wait()
        if lifeline.started(pid) is not None:
            os.kill(pid, signal.SIGKILL)


def ended(pid: int) -> bool:
    return lifeline.started(pid) is None


def kill(launcher: subprocess.Popen[str]) -> None:
    launcher.kill()
    launcher.wait(HANGS_SECONDS)


@pytest.mark.parametrize("how", ["at_once", "asked"])
@pytest.mark.parametrize("shell", [[], ["sh", "-c", '"$@"; true', "sh"]], ids=["directly", "below a shell"])
def test_a_command_ends_with_who_started_it(launched, how, shell):
    launcher, pid = launched(*shell, sys.executable, "-c", FOLLOWER, how)
    assert not ended(pid)
    kill(launcher)
    until(lambda: ended(pid))


@pytest.mark.parametrize("how", ["at_once", "asked"])
def test_what_a_job_of_slurm_runs_ends_with_its_step(launched, how):
    """Nobody else would end it: srun waits for ever for a task that has lost its slurmstepd."""
    command = ["sh", "-c", '"$@"; true', "sh", sys.executable, "-c", FOLLOWER, how]
    step, pid = launched(*command, program=STEP, SLURM_JOB_ID="17")
    assert not ended(pid)
    kill(step)
    until(lambda: ended(pid))


def test_a_stopped_rank_ends_too(launched):
    launcher, pid = launched(sys.executable, "-c", FOLLOWER, "at_once")
    os.kill(pid, signal.SIGSTOP)
    kill(launcher)
    until(lambda: ended(pid))


def test_a_launcher_is_asked_and_removes_what_it_has_made(launched, tmp_path):
    launcher, pid = launched(sys.executable, "-c", ORDERLY, str(tmp_path / "said"))
    kill(launcher)
    until(lambda: ended(pid))
    assert (tmp_path / "said").read_text() == "removed"


def test_one_that_has_lost_its_starter_before_it_looks_ends_too(monkeypatch):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    leader = lifeline.Leader.this()._replace(pid=dead.pid, started=lifeline.started(dead.pid) or 0)
    dead.wait()
    environment = os.environ | {lifeline.VARIABLE: str(leader)}
    child = subprocess.Popen([sys.executable, "-c", FOLLOWER, "asked"], env=environment, stdout=subprocess.DEVNULL)
    assert child.wait(HANGS_SECONDS) == -signal.SIGTERM


def test_a_later_process_of_the_same_number_is_another_one():
    this = lifeline.Leader.this()
    assert not this.gone()
    assert this._replace(started=this.started - 1).gone()


def test_who_has_ended_is_gone_also_before_its_parent_asks():
    child = subprocess.Popen([sys.executable, "-c", ""])
    leader = lifeline.Leader.this()._replace(pid=child.pid, started=lifeline.started(child.pid) or 0)
    until(lambda: "Z" in Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2])
    assert leader.gone()
    child.wait()


def test_a_job_of_a_cluster_does_not_end_with_who_submitted_it(launched):
    environment = lifeline.led(os.environ)
    assert lifeline.Leader.of(environment) == lifeline.Leader.this()
    leader = str(lifeline.Leader.this())
    elsewhere = [leader.replace("//", "/7/"), "x" + leader, "", "nonsense", "a/b/c"]
    assert [lifeline.Leader.of({lifeline.VARIABLE: each}) for each in elsewhere] == [None] * 5
    launcher, pid = launched("env", "SLURM_JOB_ID=7", sys.executable, "-c", FOLLOWER, "asked")
    kill(launcher)
    threads = {path.read_text().strip() for path in Path(f"/proc/{pid}/task").glob("*/comm")}
    assert not ended(pid)
    assert len(os.listdir(f"/proc/{pid}/task")) == 1, threads  # nothing in it waits for anybody


def test_an_orphan_is_known_by_its_starter_or_his(launched):
    launcher, pid = launched(
        sys.executable,
        "-c",
        LAUNCHER,
        "env",
        "X=1",
        sys.executable,
        "-c",
        "import os, signal; print(os.getpid(), flush=True); signal.pause()",
    )
    assert not lifeline.orphaned(pid)
    os.kill(pid, signal.SIGSTOP)
    kill(launcher)
    assert lifeline.orphaned(pid)
    os.kill(pid, signal.SIGKILL)

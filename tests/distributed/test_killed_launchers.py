"""A launcher that is killed takes its ranks with it, stopped ones too, and the same command goes on from there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_training import children, plan_file, result, start, trained

from gradsync.lifetimes import leftovers, lifeline
from kills import victims
from left_in_memory import left_in_memory, stays_in_memory
from waiting import HANGS_SECONDS, until


def arguments(folder: Path) -> list[str]:
    options = ["--plan", plan_file(folder, "wfbp"), "--iterations", "40", "--block", "2"]
    return [*options, "--conformance", "0", "--no-references", "--checkpoint-seconds", "0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training if nobody kills it."""
    folder = tmp_path_factory.mktemp("whole")
    trained(folder / "run", *arguments(folder))
    return folder / "run"


@pytest.mark.deep
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_ranks_end_with_their_launcher_and_the_same_command_goes_on(tmp_path, whole, stopped):
    killed = tmp_path / "killed"
    process = start(killed, *arguments(tmp_path))
    latest = killed / "checkpoint" / "latest.json"
    until(lambda: latest.exists() or process.poll() is not None)
    ranks = children(process)
    assert len(ranks) == 2
    if stopped:
        os.kill(ranks[1], signal.SIGSTOP)
    process.kill()
    process.communicate(timeout=HANGS_SECONDS)
    until(lambda: all(lifeline.started(rank) is None for rank in ranks))
    assert "going on from the checkpoint" in trained(killed, *arguments(tmp_path))
    assert result(whole, "wfbp")["conformance"] == result(killed, "wfbp")["conformance"]
    names = {str(path.relative_to(folder)) for folder in (whole, killed) for path in folder.rglob("*")}
    assert {str(path.relative_to(killed)) for path in killed.rglob("*")} == names  # and nothing else is left
    assert list(json.loads((killed / "schemes.json").read_text())) == ["wfbp"]


@pytest.mark.deep
def test_a_killed_measurement_leaves_nothing_that_the_same_command_does_not_remove(tmp_path):
    """Its ranks end with it; the next measurement knows that its temporary folder is nobody's."""
    temporary, output = tmp_path / "temporary", tmp_path / "output"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), victims.MARK: str(tmp_path)}
    in_memory = left_in_memory()

    def start() -> subprocess.Popen[bytes]:
        options = ["allreduce", "--ranks", "2", "--smallest", "64", "--largest", "4096"]
        command = [sys.executable, "-m", "gradsync", "measure", *options, "--output", str(output / "points.csv")]
        return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    process = start()
    until(lambda: any(each.rank == "1" for each in victims.of(str(tmp_path))) or process.poll() is not None)
    assert list(temporary.glob(f"{leftovers.PREFIX}*"))
    process.kill()
    process.wait(HANGS_SECONDS)
    until(lambda: not victims.of(str(tmp_path)))
    assert not list(output.glob("*"))  # nothing that is half written
    assert start().wait(HANGS_SECONDS) == 0
    until(lambda: not victims.of(str(tmp_path)))
    assert not list(temporary.glob(f"{leftovers.PREFIX}*"))
    assert not stays_in_memory(in_memory)
    assert [path.name for path in output.iterdir()] == ["points.csv"]

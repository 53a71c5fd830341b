"""A killed `gradsync emulate` takes what it has started and its testbed with it, and the same command goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

from kills import victims
from left_in_memory import left_in_memory, stays_in_memory
from project_copy import Project
from testbeds import real
from waiting import HANGS_SECONDS, until

SMALL = """\
version: 1
name: tiny
papers: {bml_bcube: {}}
emulated:
  - {paper: bml_bcube, model: lenet5, ranks: 2, batch: 1024, topology: switch, dilation: 4, schemes: [wfbp],
     iterations: 4, block: 2}
"""
COUNTED = ["measure", "operations", "--model", "lenet5", "--batch", "1", "--teraflops", "1", "--output"]


@real
def test_a_killed_emulation_leaves_nothing_and_the_same_command_works(tmp_path):
    project = Project(tmp_path)
    project.write("config/tiny.yaml", SMALL)
    results = tmp_path / "results" / "tiny"
    (results / "counted" / "lenet5").mkdir(parents=True)
    counted = project.run("gradsync", *COUNTED, str(results / "counted" / "lenet5" / "workload.json"))
    assert counted.returncode == 0, counted.stdout
    (tmp_path / "temporary").mkdir()
    variables = {"TMPDIR": str(tmp_path / "temporary"), victims.MARK: str(tmp_path)}
    command = [sys.executable, "-m", "gradsync", "emulate", "lenet5-2", "--config", "config/tiny.yaml"]

    def start() -> subprocess.Popen[str]:
        output = (tmp_path / "said").open("w")
        environment = project.environment | variables
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output, text=True)

    in_memory, process = left_in_memory(), start()
    ours: list[int] = []  # one of them has made the testbed

    def ranks_run() -> bool:
        there = victims.of(str(tmp_path))
        ours[:] = [each.pid for each in there if not each.rank]
        return any(each.rank == "1" for each in there) and any(victims.networks(pid) for pid in ours)

    until(lambda: ranks_run() or process.poll() is not None)
    assert process.poll() is None, project.read("said")
    process.send_signal(signal.SIGKILL)
    process.wait(HANGS_SECONDS)
    until(lambda: not victims.of(str(tmp_path)))
    assert not any(victims.networks(pid) for pid in ours)
    assert not (results / "runs" / "emulated" / "lenet5-2" / "status.json").exists()
    again = start()
    assert again.wait(HANGS_SECONDS) == 0, project.read("said")
    assert json.loads((results / "runs" / "emulated" / "lenet5-2" / "status.json").read_text())["possible"]
    until(lambda: not victims.of(str(tmp_path)))
    assert not [path for path in os.listdir(tmp_path / "temporary") if path.startswith("gradsync-")]
    assert not stays_in_memory(in_memory)

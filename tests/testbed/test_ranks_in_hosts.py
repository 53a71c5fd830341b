"""Real ranks, each in a host of its own, over links with a limit: what they measure, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from test_testbed import netns, real

from gradsync.cli import main

MEASURE = ["measure", "allreduce", "--json", "--smallest", "500000", "--largest", "1000000"]


@real
@pytest.mark.parametrize(
    ("testbed", "collective", "loads"),
    [
        ("bcube:2,2", "bml", 2 * 3 / (2 * 4)),  # both links of a host together: half of what one could
        ("switch", "native", 2 * 3 / 4),
    ],
)
def test_no_message_is_faster_than_the_links_of_its_topology(tmp_path, capfd, testbed, collective, loads):
    before, rate = netns(), 1e8
    told = ["--ranks", "4", "--testbed", testbed, "--collective", collective, "--rate", str(rate)]
    assert main([*MEASURE, *told, "--output", str(tmp_path / "points.csv")]) == 0
    answer = json.loads(capfd.readouterr().out)
    for point in answer["points"]:
        # 3 %: what a bucket may give at once
        assert point["mean_seconds"] > 0.97 * loads * point["bytes"] * 8 / rate
    assert answer["provenance"]["testbed"] == f"{testbed}, 1e+08 bit/s a link"
    assert netns() == before


@real
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--testbed", "bcube:2,2", "--collective", "native"], "no switch of the testbed joins all of them"),
        (["--testbed", "bcube:2,2", "--collective", "ps_p2p"], "are in no switch of rail 0"),
        (["--testbed", "switch", "--collective", "bml"], "a message on rail 1, hosts here have 1"),
        (["--testbed", "torus2d"], "can't be emulated"),
        (["--testbed", "switch:3"], "holds 1 to 3 ranks, not 4"),
        (["--testbed", "switch", "--rate", "0"], "rate 0 bit/s"),
    ],
)
def test_what_a_testbed_cannot_carry_is_refused(tmp_path, capfd, arguments, said):
    before = netns()
    assert main([*MEASURE, "--ranks", "4", *arguments, "--output", str(tmp_path / "points.csv")]) == 2
    told = capfd.readouterr().err
    assert said in told
    assert "Traceback" not in told
    assert netns() == before


@real
def test_a_rank_that_is_killed_ends_the_launch_and_leaves_nothing(tmp_path):
    before = netns()
    told = ["--ranks", "4", "--testbed", "bcube:2,2", "--collective", "bml", "--rate", "1e6"]  # would take minutes
    running = subprocess.Popen(
        [sys.executable, "-m", "gradsync", *MEASURE, *told, "--output", str(tmp_path / "points.csv")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    deadline, victims = time.monotonic() + 60, []
    while not victims and time.monotonic() < deadline:
        time.sleep(0.2)
        hosts = sorted(name for name in netns() - before if name.endswith("-h2"))
        pids = [subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout for name in hosts]
        victims = [int(pid) for each in pids for pid in each.split()]
    time.sleep(8)  # until they are in their messages
    os.kill(victims[0], signal.SIGKILL)
    _, err = running.communicate(timeout=30)
    assert running.returncode == 1
    assert "rank 2 was killed by SIGKILL; the other ranks were ended" in err
    assert netns() == before

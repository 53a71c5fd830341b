"""Work of others on the cores while something is timed: results, plans and tables report it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gradsync.cli import main
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime.other_work import STAT, OtherWork, busy_seconds, most_of_others
from gradsync.statistics import quiet

# columns of a system with two cores: user nice system idle iowait irq softirq steal guest guest_nice
SYSTEM = """\
cpu  1100 50 300 8000 100 20 30 400 7 7
cpu0 1000 50 200 4000 100 10 10 300 7 7
cpu1 100 0 100 4000 0 10 20 100 0 0
intr 1 2 3
"""
BURN = "while True: pass"


def test_what_is_busy_on_a_core_is_all_but_idle_and_waiting():
    second = os.sysconf("SC_CLK_TCK")
    assert busy_seconds(SYSTEM, [0]) == (1000 + 50 + 200 + 10 + 10 + 300) / second
    assert busy_seconds(SYSTEM, [0, 1]) == (1570 + 330) / second
    assert busy_seconds("", [0]) == 0


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ({"a": [([0, 1], 10.0, 5.0, 12.0), ([0, 1], 10.0, 5.0, 12.0)]}, 0.1),  # 1.2 cores busy, 1.0 by the two ranks
        ({"a": [([0], 10.0, 5.0, 6.0), ([1], 10.0, 5.0, 8.0)]}, 0.2),  # 1.4 busy, 1.0 by ranks on cores of their own
        ({"a": [([0], 10.0, 5.0, 5.0)], "b": [([0], 10.0, 5.0, 9.0)]}, 0.4),  # the node with the most
        ({"a": [([0], 10.0, 5.1, 5.0)]}, 0.0),
    ],
)
def test_the_share_is_what_ranks_have_not_used(nodes, wanted):
    assert most_of_others(nodes) == {quiet.KEY: pytest.approx(wanted)}


@pytest.mark.parametrize("rank", [([0], 0.5, 0.1, 0.4), ([0], 5.0, 1.0, 0.0)], ids=["too short", "no /proc/stat"])
def test_what_is_not_known_is_not_told(rank):
    assert most_of_others({"a": [rank]}) == {}
    assert quiet.load_warnings({}, "launch") == []


@pytest.mark.skipif(not STAT.is_file(), reason="the system has no /proc/stat")
def test_another_process_on_the_cores_is_seen_and_this_one_is_not():
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with subprocess.Popen([sys.executable, "-c", BURN]) as other:
            others = OtherWork()
            time.sleep(1.5)
            share = others.share()[quiet.KEY]
            other.kill()
        watch, begun, used_before = OtherWork(), time.monotonic(), time.process_time()
        while time.monotonic() - begun < 1.5:
            pass
        used = watch.share()[quiet.KEY]
        own = (time.process_time() - used_before) / (time.monotonic() - begun)
    finally:
        os.sched_setaffinity(0, before)
    assert share > 0.5
    assert used <= 1 - own + 0.1  # tests beside this one may use the rest of the core


def test_a_plan_from_times_taken_under_load_warns(tmp_path: Path, capsys):
    layers = (Layer(name="a", bytes=400, backward_seconds=1.0), Layer(name="b", bytes=800, backward_seconds=2.0))
    net, points = tmp_path / "net.json", tmp_path / "points.csv"
    rows = "bytes,seconds,ranks\n" + "".join(f"{size},{1e-3 + size * 1e-9},2\n" for size in (64, 4096, 65536))
    arguments = ["plan", "--workload", str(net), "--allreduce", str(points), "--ranks", "2", "--schedule", "wfbp"]

    def warned(share_of_net: float, share_of_points: float) -> list[str]:
        load = Workload(name="net", forward_seconds=1.0, layers=layers, provenance={quiet.KEY: share_of_net})
        net.write_text(load.to_json())
        points.write_text(f"# {quiet.KEY}: {share_of_points}\n{rows}")
        assert main([*arguments, "--json"]) == 0
        return [each for each in json.loads(capsys.readouterr().out)["warnings"] if quiet.UNDER_LOAD in each]

    assert warned(0.02, 0.1) == []
    (one,) = warned(0.23, 0.0)
    assert one.startswith(f"workload {net}: timed while other work took 23% of the cores")
    (other,) = warned(0.0, 0.4)
    assert other.startswith(f"all-reduce times {points}: timed while other work took 40% of the cores")

"""Wiring of topologies, and real testbeds: hosts that reach whom they should, and nothing left behind.

Real ones need root and iproute2; tests of them say so where they are skipped.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import combinations

import pytest

from gradsync import topologies
from gradsync.cli import main
from gradsync.errors import InputError, RunError
from gradsync.testbed import namespaces
from gradsync.testbed.namespaces import testbed as made_of
from gradsync.testbed.wiring import CONTROL, cables

RATE = 4e8
MISSING = "" if shutil.which("ip") and shutil.which("tc") else "no iproute2"
MISSING = MISSING or ("" if os.geteuid() == 0 else "not root")
real = pytest.mark.skipif(bool(MISSING), reason=f"testbeds can't be made here: {MISSING}")


def wired(text: str, hosts: int | None = None):
    return cables(topologies.parse(text), hosts)


def netns() -> set[str]:
    found = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in found.splitlines()}


def reached(made, host: int, address: str) -> str:
    """What happens to a connection to a port that nobody listens on: refused by the host, or no way to it."""
    attempt = f"import socket; socket.create_connection(({address!r}, 9), timeout=5)"
    ended = subprocess.run(made.on(host, [sys.executable, "-S", "-c", attempt]), capture_output=True, text=True)
    return ended.stderr.strip().splitlines()[-1]


# Wiring


def test_each_switch_of_a_bcube_joins_the_hosts_that_differ_in_its_digit_alone():
    found = [cable for cable in wired("bcube:3,2") if cable.rail is not None]
    assert len(found) == 18
    together = {
        (a.host, b.host): a.rail for a, b in combinations(found, 2) if a.switch == b.switch and a.host != b.host
    }
    for a, b in combinations(range(9), 2):
        differing = [level for level in range(2) if a // 3**level % 3 != b // 3**level % 3]
        assert together.get((a, b)) == (differing[0] if len(differing) == 1 else None)
    for switch in {cable.switch for cable in found}:
        assert len({cable.network for cable in found if cable.switch == switch}) == 1


@pytest.mark.parametrize("text", ["switch:4", "fat_tree:4", "bcube:2,3"])
def test_addresses_are_all_different_and_every_host_is_in_the_control_network(text):
    found = wired(text)
    assert len({cable.address for cable in found}) == len(found)
    hosts = topologies.parse(text).hosts
    assert [cable.host for cable in found if cable.switch == CONTROL] == list(range(hosts))


@pytest.mark.parametrize(
    ("text", "hosts", "said"),
    [
        ("torus2d:2,2", None, "can't be emulated: known are bcube, fat_tree, switch"),
        ("switch:4", 5, "holds 1 to 4 hosts, not 5"),
        ("switch:4", 0, "holds 1 to 4 hosts, not 0"),
        ("switch:300", None, "300 hosts, a testbed has 250 at most"),
    ],
)
def test_what_cannot_be_wired_is_refused_by_name(text, hosts, said):
    with pytest.raises(InputError, match=said):
        wired(text, hosts)


@pytest.mark.parametrize("rate", [0, -1.0, 1e12, float("nan")])
def test_rates_that_make_no_sense_are_refused(rate, capsys):
    assert main(["testbed", "check", "--rate", str(rate)]) == 2
    assert "a link takes 100000 to 1e+11" in capsys.readouterr().err


def test_a_missing_command_is_named(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert main(["testbed", "check", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert not answer["possible"]
    assert "install iproute2" in answer["reason"]


# In the kernel


@real
def test_hosts_reach_their_neighbours_on_each_level_and_nobody_else():
    before = netns()
    with made_of(wired("bcube:2,2"), RATE) as made, made_of(wired("bcube:2,2"), RATE) as other:
        assert len(netns() - before) == 10  # two at a time don't collide: four hosts each, and their switches
        for peer, rail in ((1, 0), (2, 1), (3, None)):
            assert "refused" in reached(made, 0, made.address(peer, rail))
        for rail in (0, 1):  # host 3 differs in both digits
            assert "unreachable" in reached(made, 0, made.address(3, rail))
        assert "refused" in reached(other, 1, other.address(0, 0))
        shaped = subprocess.run(made.on(0, ["tc", "qdisc", "show"]), capture_output=True, text=True).stdout
        assert shaped.count("htb") == 2
        assert "dev control root tbf" not in shaped
    assert netns() == before


@real
def test_nothing_is_left_where_a_testbed_fails():
    before = netns()
    with pytest.raises(RunError, match="testbed: ip"), made_of([*wired("switch:2"), *wired("switch:2")], RATE):
        pass  # the same interface twice
    started = []

    def fails(made):
        started.append(subprocess.Popen(made.on(0, ["sleep", "1000"])))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), made_of(wired("switch:2"), RATE) as made:
        fails(made)
    assert started[0].wait(10) == -signal.SIGKILL
    assert netns() == before


@real
def test_what_a_killed_run_has_left_is_removed_and_what_lives_is_kept(capsys):
    before = netns()
    program = (
        "import sys; from gradsync import topologies; from gradsync.testbed.wiring import cables\n"
        "from gradsync.testbed.namespaces import testbed\n"
        "with testbed(cables(topologies.parse('switch:2')), 4e8): print('there', flush=True); sys.stdin.read()"
    )
    running = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert running.stdout is not None
    assert running.stdout.readline() == b"there\n"
    left = netns() - before
    assert len(left) == 3
    assert not left & set(namespaces.left_behind())  # its process lives
    running.kill()
    running.communicate()
    with made_of(wired("switch:2"), RATE) as made:
        assert main(["testbed", "clean", "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["removed"]) >= left
        assert made.namespace(0) in netns()
    assert netns() == before
    assert main(["testbed", "clean", "--json"]) == 0  # again: nothing to do


@real
def test_the_check_measures_links_within_their_limit(capsys):
    before = netns()
    assert main(["testbed", "check", "--json", "--rate", "8e8"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["possible"], answer["how"]) == (True, "root")
    assert [link["rail"] for link in answer["links"]] == [0, 1]
    for link in answer["links"]:
        assert 0.1 < link["share_of_rate"] < 1.02  # a limit, whatever else the machine does
        assert 0 < link["round_trip_seconds"] < 1
    assert netns() == before

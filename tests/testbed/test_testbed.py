"""Wiring of topologies, and real testbeds: hosts that reach whom they should, and nothing left behind.

Real ones need root and iproute2; tests of them say so where they are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path

import pytest

from gradsync import topologies
from gradsync.cli import main
from gradsync.errors import InputError, RunError
from gradsync.lifetimes import lifeline
from gradsync.testbed import check, namespaces
from gradsync.testbed.namespaces import testbed as made_of
from gradsync.testbed.wiring import CONTROL, MOST_LANES, cables
from waiting import HANGS_SECONDS, until

RATE = 4e8
HERE = Path(__file__).parent
FOLDERS = [str(HERE), str(HERE.parent / "support")]  # where a program finds this file and what it imports
MISSING = "" if shutil.which("ip") and shutil.which("tc") else "no iproute2"
MISSING = MISSING or ("" if os.geteuid() == 0 else "not root")
real = pytest.mark.skipif(bool(MISSING), reason=f"testbeds can't be made here: {MISSING}")


def wired(text: str, hosts: int | None = None):
    return cables(topologies.parse(text), hosts)


def netns() -> set[str]:
    """All but those of testbeds that others have meanwhile: neither this process nor one that it has started."""
    told = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return {name for name in (line.split()[0] for line in told.splitlines()) if not of_others(name)}


def of_others(name: str) -> bool:
    if not (found := namespaces.NAME.fullmatch(name)) or int(found[1]) == os.getpid():
        return False
    try:
        _, parent, *_ = Path(f"/proc/{found[1]}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # its process is gone: left behind by somebody
        return False
    return int(parent) != os.getpid()


def reached(made, host: int, address: str) -> str:
    """What happens to a connection to a port that nobody listens on: refused by the host, or no way to it."""
    attempt = f"import socket; socket.create_connection(({address!r}, 9), timeout=60)"
    ended = subprocess.run(made.on(host, [sys.executable, "-S", "-c", attempt]), capture_output=True, text=True)
    return ended.stderr.strip().splitlines()[-1]


# Wiring


def test_each_switch_of_a_bcube_joins_the_hosts_that_differ_in_its_digit_alone():
    found = [cable for cable in wired("bcube:3,2") if cable.rails]
    assert len(found) == 18
    together = {
        (a.host, b.host): a.rails for a, b in combinations(found, 2) if a.switch == b.switch and a.host != b.host
    }
    for a, b in combinations(range(9), 2):
        differing = [level for level in range(2) if a // 3**level % 3 != b // 3**level % 3]
        assert together.get((a, b)) == (tuple(differing) if len(differing) == 1 else None)
    for switch in {cable.switch for cable in found}:
        assert len({cable.address.rpartition(".")[0] for cable in found if cable.switch == switch}) == 1


@pytest.mark.parametrize("text", ["switch:4", "fat_tree:4", "bcube:2,3"])
def test_addresses_are_all_different_and_every_host_is_in_the_control_network(text):
    found = wired(text)
    assert len({cable.address for cable in found}) == len(found)
    hosts = topologies.parse(text).hosts
    assert [cable.host for cable in found if cable.switch == CONTROL] == list(range(hosts))


@pytest.mark.parametrize("text", ["switch:4", "bcube:3,2"])
def test_each_lane_has_a_network_of_its_own_on_every_switch(text):
    found = wired(text)
    own = [
        (cable.switch, lane, *cable.on_lane(lane))
        for cable in found
        for lane in range(MOST_LANES if cable.rails else 1)
    ]
    assert len({address for _, _, address, _ in own}) == len(own)
    networks = {(switch, lane, address.rpartition(".")[0]) for switch, lane, address, _ in own}
    assert len({network for *_, network in networks}) == len(networks)  # a network is of one switch and lane
    assert found[-1].on_lane(0) == (found[-1].address, found[-1].interface)
    assert max(len(name) for *_, name in own) < 16  # what the kernel takes for a name
    assert max(int(part) for _, _, address, _ in own for part in address.split(".")) < 256


@pytest.mark.parametrize("lanes", [0, MOST_LANES + 1])
def test_lanes_that_there_are_no_addresses_for_are_refused(lanes):
    with pytest.raises(InputError, match=rf"{lanes} lanes: a testbed has 1 to {MOST_LANES}"):
        namespaces.refuse_lanes(lanes)


def test_ranks_of_a_dense_node_share_a_host_and_its_one_link():
    found = namespaces.Testbed("dense", tuple(wired("dense_gpu:3,2", 5)), RATE)  # the last node is half full
    assert found.places() == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert len(found.cables) == 2 * 3  # a link a host, and that of the control network
    # whichever level of a collective a message belongs to, it leaves on that link
    assert found.interfaces() == ["rail0", "rail0"]
    assert found.switches() == [[[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]]]
    assert found.address(1, 0) == found.address(1, 1) != found.address(1, None)


def test_a_rank_a_host_is_told_by_rail_and_switch():
    found = namespaces.Testbed("bcube", tuple(wired("bcube:2,2")), RATE)
    assert found.places() == [(rank, 0) for rank in range(4)]
    assert found.switches() == [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    assert found.interfaces() == ["rail0", "rail1"]


def test_only_hosts_that_are_asked_for_are_wired():
    assert len(wired("switch:1048576", 3)) == len(wired("bcube:1024,2", 3)) - 3 == 6


@pytest.mark.parametrize(
    ("text", "hosts", "said"),
    [
        ("torus2d:2,2", None, "can't be emulated: known are bcube, dense_gpu, fat_tree, switch"),
        ("switch:4", 5, "holds 1 to 4 ranks, not 5"),
        ("switch:4", 0, "holds 1 to 4 ranks, not 0"),
        ("switch:300", None, "300 hosts, a testbed has 250 at most"),
        ("dense_gpu:300,8", 2001, "251 hosts, a testbed has 250 at most"),
    ],
)
def test_what_cannot_be_wired_is_refused_by_name(text, hosts, said):
    with pytest.raises(InputError, match=said):
        wired(text, hosts)


@pytest.mark.parametrize("rate", [0, -1.0, 1e12, float("nan")])
def test_rates_that_make_no_sense_are_refused(rate, capsys):
    assert main(["testbed", "check", "--rate", str(rate)]) == 2
    wanted = "must be a finite number" if rate != rate else "a link takes 100000 to 1e+11"
    assert wanted in capsys.readouterr().err


def test_a_missing_command_is_named(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert main(["testbed", "check", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert not answer["possible"]
    assert "install iproute2" in answer["reason"]


def test_more_ranks_than_the_machine_holds_are_refused_with_the_limit(tmp_path, capsys):
    told = ["measure", "allreduce", "--ranks", "1000", "--testbed", "switch", "--output", str(tmp_path / "p.csv")]
    assert main(told) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert "1000 ranks are more than this machine can hold" in said
    assert said.rpartition(" at most ")[2].isdigit()


# Shaping


def test_a_link_with_latency_delays_what_waits_in_each_of_its_queues():
    cables = tuple(wired("switch:3"))
    with_one = "\n".join(
        namespaces._shaped("rail0", "dst", ["10.1.0.2", "10.1.0.3"], namespaces.Testbed("t", cables, RATE, None, 25e-5))
    )
    without = "\n".join(
        namespaces._shaped("rail0", "dst", ["10.1.0.2", "10.1.0.3"], namespaces.Testbed("t", cables, RATE))
    )
    # a queue a peer, one for the rest; as many of the smallest packets as the 32 MB of the other kind
    assert with_one.count("netem limit 500000 delay 250us") == 3 == without.count("bfifo limit 32mb")
    assert with_one.replace("netem limit 500000 delay 250us", "bfifo limit 32mb") == without


@pytest.mark.parametrize("latency", [-1e-3, 1e-9, 2.0, float("nan")])
def test_latencies_that_make_no_sense_are_refused(latency):
    with pytest.raises(InputError, match="a link takes none, or 1e-06 to 1"), made_of([], RATE, None, latency):
        pass


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
def test_a_connections_turn_is_no_shorter_than_the_largest_packet():
    """Or turns are packets, whatever their size, and connections with larger ones get more of a link."""
    with made_of(wired("switch:2"), RATE) as made:
        told = subprocess.check_output(made.on(0, ["tc", "-d", "class", "show", "dev", "rail0"]), text=True)
        (link,) = json.loads(subprocess.check_output(made.on(0, ["ip", "-d", "-j", "link", "show", "dev", "rail0"])))
    turns = [int(turn) for turn in re.findall(r" leaf .* quantum (\d+)", told)]
    assert len(turns) == 2  # of the peer, and of what has no class
    assert min(turns) >= link["gso_max_size"]


@real
def test_acknowledgements_do_not_wait_behind_data():
    """They are in the class that goes first; the short messages of the same connection are not."""
    with made_of(wired("switch:2"), RATE) as made:
        check._probe_link(made, 0, 1, 0)
        sent = []  # by host and class: bytes, packets
        for host in (0, 1):
            told = subprocess.check_output(made.on(host, ["tc", "-s", "class", "show", "dev", "rail0"]), text=True)
            found = re.findall(r"class htb (\S+) [^\n]*\n Sent (\d+) bytes (\d+) pkt", told)
            sent.append({name: (int(size), int(packets)) for name, size, packets in found})
    (transfers, _), (_, answers) = sent[0]["1:3"], sent[1]["1:3"]
    size, acknowledgements = sent[1]["1:2"]
    assert acknowledgements > 500
    assert size / acknowledgements < 14 + 64  # with the header of Ethernet
    assert 2 * (check.REPEATS + 1) <= answers < 100  # a byte for each transfer and round trip
    assert transfers > (check.REPEATS + 1) * check.TRANSFER_BYTES


@real
def test_latency_is_kept_or_refused_where_the_kernel_can_not():
    before, latency = netns(), 0.05
    delay = ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"]
    if subprocess.run(delay, capture_output=True).returncode:
        with pytest.raises(InputError, match=r"latency 0.05 s: this kernel can't delay packets \(sch_netem is"):
            with_latency(latency)
    else:
        assert with_latency(latency) > 4 * latency  # up and down, there and back
    assert netns() == before


def with_latency(latency: float) -> float:
    """Seconds that a host takes to learn from another that nobody listens."""
    with made_of(wired("switch:2"), RATE, None, latency) as made:
        reached(made, 0, made.address(1, 0))  # each knows the other's place from here on
        start = time.perf_counter()
        reached(made, 0, made.address(1, 0))
        return time.perf_counter() - start


@real
def test_addresses_that_the_machine_has_are_in_nobodys_way():
    # a network of its own stands in for the machine's
    own = "ip link add own type veth peer name far && ip addr add 10.1.0.1/24 dev own && ip link set own up"
    held = "mount -t tmpfs none /run && " + own + ' && ip link set far up && exec "$@"'
    program = (
        "import subprocess, sys; sys.path += sys.argv[1:]\n"
        "from test_testbed import RATE, made_of, reached, wired\n"
        "def state(): return [subprocess.check_output(['ip', '-o', what]) for what in ('link', 'addr', 'route')]\n"
        "before = state()\n"
        "with made_of(wired('switch:2'), RATE) as made:\n"
        "    assert [made.address(host, 0) for host in (0, 1)] == ['10.1.0.1', '10.1.0.2']\n"
        "    print(reached(made, 0, '10.1.0.2'), state() == before)\n"
        "print(state() == before)\n"
    )
    command = ["unshare", "--net", "--mount", "sh", "-c", held, "sh", sys.executable, "-c", program]
    ended = subprocess.run([*command, *FOLDERS], capture_output=True, text=True, check=True)
    assert ended.stdout == "ConnectionRefusedError: [Errno 111] Connection refused True\nTrue\n", ended.stderr


@real
def test_five_testbeds_in_a_row_leave_the_machine_as_it_was():
    def state():
        return [subprocess.check_output(["ip", *what.split()]) for what in ("-o link", "-o addr", "route")]

    program = (
        "import subprocess, sys; sys.path += sys.argv[1:]\n"
        "from test_testbed import RATE, made_of, wired\n"
        "for _ in range(5):\n"
        "    with made_of(wired('bcube:2,2'), RATE) as made:\n"
        "        [subprocess.Popen(made.on(host, ['sleep', '1000'])) for host in range(4)]\n"
    )
    before = state()
    running = subprocess.Popen([sys.executable, "-c", program, *FOLDERS], start_new_session=True)
    assert running.wait(HANGS_SECONDS) == 0
    assert state() == before
    assert not [name for name in netns() if name.startswith(f"gradsync-{running.pid}-")]
    until(lambda: gone(running.pid))


def gone(session: int) -> bool:
    """Whether nobody lives of a session; when its dead are buried is up to init."""
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, its_session = file.read_text().rpartition(")")[2].split()[:4]
        except OSError:  # it ended meanwhile
            continue
        if int(its_session) == session and state != "Z":
            return False
    return True


@real
def test_more_hosts_than_namespaces_are_allowed_are_refused_with_the_limit():
    # in a user namespace, whose limits are ours to set; the first of them is the one that it has already
    limited = 'mount -t tmpfs none /run && echo 4 >/proc/sys/user/max_net_namespaces && exec "$@"'
    way = ["unshare", "--user", "--map-root-user", "--net", "--mount", "sh", "-c", limited, "sh"]
    ended = subprocess.run(
        [*way, sys.executable, "-m", "gradsync", "testbed", "check", "--json"], capture_output=True, text=True
    )
    answer = json.loads(ended.stdout)
    assert not answer["possible"]
    assert "4 hosts and their switches are 5 network namespaces, this machine allows 4" in answer["reason"]


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
    assert started[0].wait(HANGS_SECONDS) == -signal.SIGKILL
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
    capsys.readouterr()
    with made_of(wired("switch:2"), RATE) as made, made_of(wired("switch:2"), RATE):
        told = capsys.readouterr().err
        assert told.count(f"gradsync-{running.pid}-") == told.count("gradsync testbed clean removes them") == 1
        assert main(["testbed", "clean", "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["removed"]) >= left
        assert made.namespace(0) in netns()
    assert netns() == before
    assert main(["testbed", "clean", "--json"]) == 0  # again: nothing to do


@real
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_testbed_whose_launcher_is_killed_goes_with_it_or_is_cleaned(capsys, stopped):
    """Its maker ends by itself, and removes it; one that can't is ended by who cleans."""
    launched = (
        "import os, subprocess, sys; from gradsync.lifetimes import lifeline\n"
        "subprocess.run([sys.executable, '-m', 'gradsync', 'testbed', 'check', '--rate', '1e5'],"
        " env=lifeline.led(os.environ), preexec_fn=lambda: print(os.getpid(), flush=True))"
    )
    launcher = subprocess.Popen([sys.executable, "-c", launched], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    maker = int(launcher.stdout.readline())

    def made() -> set[str]:
        told = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return {line.split()[0] for line in told.splitlines() if line.startswith(f"gradsync-{maker}-")}

    until(lambda: len(made()) > 4)
    there = made()
    assert not there & set(namespaces.left_behind())
    if stopped:
        os.kill(maker, signal.SIGSTOP)
    launcher.kill()
    launcher.wait(HANGS_SECONDS)
    if stopped:
        assert main(["testbed", "clean", "--json"]) == 0
        assert set(json.loads(capsys.readouterr().out)["removed"]) >= there
    until(lambda: lifeline.started(maker) is None)
    launcher.stdout.close()
    until(lambda: not made())


@real
def test_the_check_measures_links_within_their_limit(capsys):
    before = netns()
    assert main(["testbed", "check", "--json", "--rate", "8e8"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["possible"], answer["how"]) == (True, "root")
    assert [link["rail"] for link in answer["links"]] == [0, 1]
    for link in answer["links"]:
        assert 0 < link["share_of_rate"] < 1.02  # a limit, whatever else the machine does
        assert link["round_trip_seconds"] > 0
    assert netns() == before

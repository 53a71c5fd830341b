"""Testbeds in the kernel: hosts reach whom they should, over links that are shaped as they should be."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest

from gradsync.cli import main
from gradsync.errors import InputError
from gradsync.testbed import check
from testbeds import FOLDERS, RATE, made_of, netns, reached, real, wired


@real
def test_hosts_reach_their_neighbours_on_each_level_and_nobody_else():
    before = netns()
    with made_of(wired("bcube:2,2"), RATE) as network, made_of(wired("bcube:2,2"), RATE) as other:
        assert len(netns() - before) == 10  # two at a time don't collide: four hosts each, and their switches
        for peer, rail in ((1, 0), (2, 1), (3, None)):
            assert "refused" in reached(network, 0, network.address(peer, rail))
        for rail in (0, 1):  # host 3 differs in both digits
            assert "unreachable" in reached(network, 0, network.address(3, rail))
        assert "refused" in reached(other, 1, other.address(0, 0))
        shaped = subprocess.run(network.on(0, ["tc", "qdisc", "show"]), capture_output=True, text=True).stdout
        assert shaped.count("htb") == 2
        assert "dev control root tbf" not in shaped
    assert netns() == before


@real
def test_a_connections_turn_is_no_shorter_than_the_largest_packet():
    """Else turns would be packets, whatever their size, and connections with larger ones would get more of a link."""
    with made_of(wired("switch:2"), RATE) as network:
        classes = subprocess.check_output(network.on(0, ["tc", "-d", "class", "show", "dev", "rail0"]), text=True)
        (link,) = json.loads(subprocess.check_output(network.on(0, ["ip", "-d", "-j", "link", "show", "dev", "rail0"])))
    turns = [int(turn) for turn in re.findall(r" leaf .* quantum (\d+)", classes)]
    assert len(turns) == 2  # of the peer, and of what has no class
    assert min(turns) >= link["gso_max_size"]


@real
def test_acknowledgements_do_not_wait_behind_data():
    """Acknowledgements are in the class that goes first; the short messages of the same connection are not."""
    with made_of(wired("switch:2"), RATE) as network:
        check._probe_link(network, 0, 1, 0)
        sent = []  # by host and class: bytes, packets
        for host in (0, 1):
            classes = subprocess.check_output(
                network.on(host, ["tc", "-s", "class", "show", "dev", "rail0"]), text=True
            )
            counters = re.findall(r"class htb (\S+) [^\n]*\n Sent (\d+) bytes (\d+) pkt", classes)
            sent.append({name: (int(size), int(packets)) for name, size, packets in counters})
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
    """The seconds that a host takes to learn from another that nobody listens."""
    with made_of(wired("switch:2"), RATE, None, latency) as network:
        reached(network, 0, network.address(1, 0))  # from now on each knows the other's address
        start = time.perf_counter()
        reached(network, 0, network.address(1, 0))
        return time.perf_counter() - start


@real
def test_addresses_that_the_machine_has_are_in_nobodys_way():
    # a network of its own stands in for the machine's
    machine = "ip link add own type veth peer name far && ip addr add 10.1.0.1/24 dev own && ip link set own up"
    script = "mount -t tmpfs none /run && " + machine + ' && ip link set far up && exec "$@"'
    program = (
        "import subprocess, sys; sys.path += sys.argv[1:]\n"
        "from testbeds import RATE, made_of, reached, wired\n"
        "def state(): return [subprocess.check_output(['ip', '-4', '-o', of]) for of in ('link', 'addr', 'route')]\n"
        "before = state()\n"
        "with made_of(wired('switch:2'), RATE) as made:\n"
        "    assert [made.address(host, 0) for host in (0, 1)] == ['10.1.0.1', '10.1.0.2']\n"
        "    print(reached(made, 0, '10.1.0.2'), state() == before)\n"
        "print(state() == before)\n"
    )
    command = ["unshare", "--net", "--mount", "sh", "-c", script, "sh", sys.executable, "-c", program]
    ended = subprocess.run([*command, *FOLDERS], capture_output=True, text=True, check=True)
    assert ended.stdout == "ConnectionRefusedError: [Errno 111] Connection refused True\nTrue\n", ended.stderr


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

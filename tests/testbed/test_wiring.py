"""Which cables a topology has, how their links are shaped, and what is refused: no testbed is made."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from gradsync import topologies
from gradsync.cli import main
from gradsync.errors import InputError
from gradsync.runtime.fabric import Fabric
from gradsync.testbed import namespaces
from gradsync.testbed.wiring import CONTROL, MOST_LANES
from testbeds import RATE, made_of, wired

# Wiring


def test_each_switch_of_a_bcube_joins_the_hosts_that_differ_in_its_digit_alone():
    cables = [cable for cable in wired("bcube:3,2") if cable.rails]
    assert len(cables) == 18
    together = {
        (a.host, b.host): a.rails for a, b in combinations(cables, 2) if a.switch == b.switch and a.host != b.host
    }
    for a, b in combinations(range(9), 2):
        differing = [level for level in range(2) if a // 3**level % 3 != b // 3**level % 3]
        assert together.get((a, b)) == (tuple(differing) if len(differing) == 1 else None)
    for switch in {cable.switch for cable in cables}:
        assert len({cable.address.rpartition(".")[0] for cable in cables if cable.switch == switch}) == 1


@pytest.mark.parametrize("text", ["switch:4", "fat_tree:4", "bcube:2,3"])
def test_addresses_are_all_different_and_every_host_is_in_the_control_network(text):
    cables = wired(text)
    assert len({cable.address for cable in cables}) == len(cables)
    hosts = topologies.parse(text).hosts
    assert [cable.host for cable in cables if cable.switch == CONTROL] == list(range(hosts))


@pytest.mark.parametrize("text", ["switch:4", "bcube:3,2"])
def test_each_lane_has_a_network_of_its_own_on_every_switch(text):
    cables = wired(text)
    names = [
        (cable.switch, lane, *cable.on_lane(lane))
        for cable in cables
        for lane in range(MOST_LANES if cable.rails else 1)
    ]
    assert len({address for _, _, address, _ in names}) == len(names)
    networks = {(switch, lane, address.rpartition(".")[0]) for switch, lane, address, _ in names}
    assert len({network for *_, network in networks}) == len(networks)  # a network is of one switch and lane
    assert cables[-1].on_lane(0) == (cables[-1].address, cables[-1].interface)
    assert max(len(name) for *_, name in names) < 16  # what the kernel takes for a name
    assert max(int(part) for _, _, address, _ in names for part in address.split(".")) < 256


@pytest.mark.parametrize("lanes", [0, MOST_LANES + 1])
def test_lanes_that_there_are_no_addresses_for_are_refused(lanes):
    with pytest.raises(InputError, match=rf"{lanes} lanes: a testbed has 1 to {MOST_LANES}"):
        namespaces.refuse_lanes(lanes)


def test_ranks_of_a_dense_node_share_a_host_and_its_one_link():
    network = namespaces.Testbed("dense", tuple(wired("dense_gpu:3,2", 5)), RATE)  # the last node is half full
    assert network.places() == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    assert len(network.cables) == 2 * 3  # a link a host, and that of the control network
    # whichever level of a collective a message belongs to, it leaves on that link
    assert network.interfaces() == ["rail0", "rail0"]
    assert network.switches() == [[[0, 1, 2, 3, 4]], [[0, 1, 2, 3, 4]]]
    assert network.address(1, 0) == network.address(1, 1) != network.address(1, None)


def test_a_rank_a_host_is_told_by_rail_and_switch():
    network = namespaces.Testbed("bcube", tuple(wired("bcube:2,2")), RATE)
    assert network.places() == [(rank, 0) for rank in range(4)]
    assert network.switches() == [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    assert network.interfaces() == ["rail0", "rail1"]


def test_only_hosts_that_are_asked_for_are_wired():
    assert len(wired("switch:1048576", 3)) == len(wired("bcube:1024,2", 3)) - 3 == 6


@pytest.mark.parametrize(
    ("text", "hosts", "message"),
    [
        ("torus2d:2,2", None, "can't be emulated: known are bcube, dense_gpu, fat_tree, switch"),
        ("switch:4", 5, "holds 1 to 4 ranks, not 5"),
        ("switch:4", 0, "holds 1 to 4 ranks, not 0"),
        ("switch:300", None, "300 hosts, a testbed has 250 at most"),
        ("dense_gpu:300,8", 2001, "251 hosts, a testbed has 250 at most"),
    ],
)
def test_what_cannot_be_wired_is_refused_by_name(text, hosts, message):
    with pytest.raises(InputError, match=message):
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
    arguments = ["measure", "allreduce", "--ranks", "1000", "--testbed", "switch", "--output", str(tmp_path / "p.csv")]
    assert main(arguments) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert "1000 ranks are more than this machine can hold" in message
    assert message.rpartition(" at most ")[2].isdigit()


# Shaping


def test_each_rank_of_a_host_has_connections_of_its_own_on_each_lane():
    """An address of its own, each with a class: what one rank receives takes nothing from the limit of another."""
    network = namespaces.Testbed("t", tuple(wired("dense_gpu:2,3")), RATE, RATE / 2, lanes=2)
    assert network.addresses == 6
    names = [
        Fabric((), ("rail0",), 2, 3, place)._alias(0, lane) for lane in range(3) for place in range(3)
    ]  # the third lane has none of its own
    assert names == ["rail0", *(f"rail0:{number}" for number in range(1, 6)), "rail0", "rail0:1", "rail0:2"]
    with pytest.raises(InputError, match="4 lanes of 4 ranks on a host: a testbed has 15 of both together"):
        namespaces.refuse_lanes(4, 4)


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

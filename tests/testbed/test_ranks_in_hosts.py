"""Real ranks, each in a host of its own, over links with a limit: what they measure, and how they end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gradsync import topologies
from gradsync.cli import main
from gradsync.collectives import rounds
from gradsync.costs.contention_points import Contention
from gradsync.errors import InputError
from gradsync.runtime.launch import launch
from gradsync.runtime.timing import FIRST, PASSES
from gradsync.testbed import namespaces
from gradsync.testbed.wiring import cables
from gradsync.topologies import NO_LINK
from sockets import listeners
from testbeds import made_of, netns, real
from waiting import HANGS_SECONDS, until

MEASURE = ["measure", "allreduce", "--json", "--smallest", "500000", "--largest", "1000000"]


@real
@pytest.mark.parametrize(
    ("testbed", "collectives", "loads"),
    [
        ("bcube:2,2", ["bml"], {"bml-2x2": 2 * 3 / (2 * 4)}),  # both links of a host together: half of what one could
        ("switch", ["native"], {"": 2 * 3 / 4}),
        (  # of a node's link, which both of its ranks share
            "dense_gpu:2,2",
            ["native", "hierarchical@dense_gpu:2,2", "torus2d@dense_gpu:2,2"],
            {"": 2 * 3 / 4, "hierarchical-2x2": 1, "torus2d-2x2": 1},
        ),
    ],
)
def test_no_message_is_faster_than_the_links_of_its_topology(tmp_path, capfd, testbed, collectives, loads):
    before, rate = netns(), 1e8
    options = ["--ranks", "4", "--testbed", testbed, "--collective", *collectives, "--rate", str(rate)]
    assert main([*MEASURE, *options, "--output", str(tmp_path / "points.csv")]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert {point["collective"] for point in answer["points"]} == set(loads)
    for point in answer["points"]:
        # 3 %: what a bucket may give at once
        assert point["mean_seconds"] > 0.97 * loads[point["collective"]] * point["bytes"] * 8 / rate
    assert answer["provenance"]["testbed"] == f"{testbed}, 1e+08 bit/s a link"
    assert netns() == before


@real
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--testbed", "bcube:2,2", "--collective", "native"], "no switch of the testbed joins all of them"),
        (["--testbed", "bcube:2,2", "--collective", "ps_p2p"], "are in no switch of rail 0"),
        (["--testbed", "switch", "--collective", "bml"], "a message on rail 1, hosts here have 1"),
        (["--testbed", "torus2d"], "can't be emulated"),
        (["--testbed", "switch:3"], "holds 1 to 3 ranks, not 4"),
        (["--testbed", "switch", "--rate", "0"], "rate 0 bit/s"),
    ],
)
def test_what_a_testbed_cannot_carry_is_refused(tmp_path, capfd, arguments, message):
    before = netns()
    assert main([*MEASURE, "--ranks", "4", *arguments, "--output", str(tmp_path / "points.csv")]) == 2
    printed = capfd.readouterr().err
    assert message in printed
    assert "Traceback" not in printed
    assert netns() == before


def sent_bytes(network: namespaces.Testbed, host: int) -> int:
    """Bytes that a host has sent over its first rail."""
    counters = subprocess.check_output(network.on(host, ["ip", "-s", "-j", "link", "show", network.interfaces()[0]]))
    return int(json.loads(counters)[0]["stats64"]["tx"]["bytes"])


def test_more_ranks_than_its_hosts_hold_are_not_started():
    network = namespaces.Testbed("none", tuple(cables(topologies.parse("dense_gpu:2,2"), 3)), 1e8)
    with pytest.raises(InputError, match="4 ranks, its hosts hold 3"):
        launch(["measure"], 4, network)


@real
def test_a_hierarchical_message_loads_the_link_of_a_node_as_its_topology_says(tmp_path):
    topology, size, name = topologies.parse("dense_gpu:2,2"), 400_000, "hierarchical@dense_gpu:2,2"
    command = ["measure", "allreduce", "--smallest", str(size), "--largest", str(size), "--collective", name]
    with made_of(cables(topology), 1e9) as network:
        before = [sent_bytes(network, host) for host in (0, 1)]
        launch([*command, "--output", str(tmp_path / "found.json")], 4, network)
        sent = [sent_bytes(network, host) - first for host, first in zip((0, 1), before, strict=True)]
    ((repeats,),) = (each.values() for each in json.loads((tmp_path / "found.json").read_text())["seconds"].values())
    messages = 1 + FIRST + PASSES + len(repeats)
    expected = np.zeros(len(topology.link_kind()))
    for step in rounds("hierarchical", topology.shape):
        used = topology.route(step.source, step.destination, step.rail)
        np.add.at(expected, used[used != NO_LINK], np.broadcast_to(step.pieces[:, None], used.shape)[used != NO_LINK])
    (load,) = set(expected[topology.link_kind() == topology.kinds.index("between")] / 4)
    for each in sent:  # in packets, whose headers take 5 % at most
        assert messages * load * size < each < 1.05 * messages * load * size + 50_000


@real
def test_ranks_listen_at_addresses_of_their_launch_alone(tmp_path):
    """They do so on the control network, and on their rail while a group is made; at no other address of a host."""
    over, command = threading.Event(), ["measure", "allreduce", "--smallest", "4096", "--largest", "4194304"]
    sockets = set()

    def look() -> None:
        while not over.wait(0.1):
            sockets.update(listeners(tmp_path))

    looking = threading.Thread(target=look)
    with made_of(cables(topologies.parse("switch:2")), 1e9) as network:
        control, rail = ({network.address(host, which) for host in (0, 1)} for which in (None, 0))
        looking.start()
        try:
            launch([*command, "--output", str(tmp_path / "found.json")], 2, network)
        finally:
            over.set()
            looking.join()
    assert control <= {each.address for each in sockets} <= control | rail, sockets


@real
def test_each_lane_has_connections_of_its_own_with_a_limit_of_their_own(tmp_path):
    rate, flow, size = 2e8, 1e8, 400_000
    command = ["measure", "contention", "--lanes", "2", "--smallest", str(size // 2), "--largest", str(size)]
    with made_of(cables(topologies.parse("switch:2")), rate, flow, lanes=2) as network:
        launch([*command, "--output", str(tmp_path / "found.json")], 2, network)
        counting = ["tc", "-n", network.namespace(0), "-s", "class", "show", "dev", "rail0"]
        classes = subprocess.check_output(counting, text=True)
    sent = [int(number) for number in re.findall(r"class htb 1:\d+ parent 1:1 leaf.*\n Sent (\d+) bytes", classes)]
    alone, together = (
        [point for point in Contention.load(tmp_path / "found.json").points if point.lanes == k and point.bytes == size]
        for k in (1, 2)
    )
    # two ranks send each other the whole message, of which a full bucket may leave at once
    limited = (size - int(namespaces.BURST.removesuffix("kb")) * 1024) * 8
    assert min(alone[0].seconds) > limited / flow
    assert min(together[0].seconds) > limited / min(flow, rate / 2)
    # the first lane carries the messages that are alone, and its share of those at once
    other, second, first = sorted(sent)
    assert first > second > size * len(together[0].seconds) > other


def measuring(tmp_path, ranks: int, testbed: str, collective: str) -> subprocess.Popen[str]:
    """A measurement that would take minutes."""
    options = ["--ranks", str(ranks), "--testbed", testbed, "--collective", collective, "--rate", "1e6"]
    return subprocess.Popen(
        [sys.executable, "-m", "gradsync", *MEASURE, *options, "--output", str(tmp_path / "points.csv")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def carries(sent: int) -> Callable[[str], bool]:
    def loaded(name: str) -> bool:
        listing = subprocess.run(["ip", "-n", name, "-s", "-j", "link"], capture_output=True, text=True).stdout
        return any(each["stats64"]["tx"]["bytes"] >= sent for each in json.loads(listing or "[]"))

    return loaded


def has_rank(name: str) -> bool:
    """Whether a rank runs in the namespace; `ip` and `tc`, which set its links up, run there too."""
    processes = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    return any(program(process).startswith("rank") for process in processes)


def program(process: str) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text()
    except OSError:  # it has ended
        return ""


def namespace_of(running: subprocess.Popen[str], part: str, sent: int = 300_000) -> str:
    """The namespace of a host, or of the switches, of a testbed, once so many bytes have gone over a link there.

    With `sent` 0 it is the one of a host, once its rank runs there: the links exist before they are set up.
    """
    names: list[str] = []

    def loaded() -> bool:
        ready = carries(sent) if sent else has_rank
        names[:] = [
            name
            for name in netns()
            if name.startswith(f"gradsync-{running.pid}-") and name.endswith(f"-{part}") and ready(name)
        ]
        return bool(names)

    until(loaded)
    return names[0]


@real
def test_a_rank_that_is_killed_ends_the_launch_and_leaves_nothing(tmp_path):
    running = measuring(tmp_path, 4, "bcube:2,2", "bml")
    host = namespace_of(running, "h2")
    victim, *_ = subprocess.check_output(["ip", "netns", "pids", host], text=True).split()
    os.kill(int(victim), signal.SIGKILL)
    _, err = running.communicate(timeout=HANGS_SECONDS)
    assert running.returncode == 1
    assert "rank 2 was killed by SIGKILL; the other ranks were ended" in err
    assert not [name for name in netns() if name.startswith(f"gradsync-{running.pid}-")]


@real
@pytest.mark.parametrize(
    ("ranks", "testbed", "collective", "sent", "part", "device", "message"),
    [
        (4, "bcube:2,2", "bml", 300_000, "h2", "rail1", "rank 2 ended: link down, interface rail1 of its host"),
        # the other end of the last cable that is made
        (2, "switch", "native", 300_000, "switches", "p3", "rank 1 ended: link down, interface rail0 of its host"),
        # before they have met: a rank that can't connect fails before anybody has looked
        (2, "switch", "native", 0, "h1", "rail0", "rank 1 ended: link down, interface rail0 of its host"),
    ],
)
def test_a_link_that_is_cut_ends_the_launch_and_leaves_nothing(
    tmp_path, ranks, testbed, collective, sent, part, device, message
):
    running = measuring(tmp_path, ranks, testbed, collective)
    name = namespace_of(running, part, sent)
    subprocess.run(["ip", "-n", name, "link", "set", device, "down"], check=True)
    _, err = running.communicate(timeout=HANGS_SECONDS)
    assert running.returncode == 1
    assert err.splitlines()[-1] == f"gradsync: {message}; the other ranks were ended"
    assert "Traceback" not in err
    assert not [name for name in netns() if name.startswith(f"gradsync-{running.pid}-")]

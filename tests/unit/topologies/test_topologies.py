"""What topologies are built of, routes that connect, the levels that ranks fill, and numbers that make no sense."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradsync import topologies
from gradsync.errors import InputError
from gradsync.topologies import NO_LINK, Speeds, parse
from gradsync.topologies.bcube import BCube
from gradsync.topologies.fat_tree import FatTree
from gradsync.topologies.torus2d import Torus2D

SMALL = [
    "switch:5",
    "numa:4",
    "dense_gpu:3,4",
    "fat_tree:2",
    "fat_tree:6",
    "bcube:3,2",
    "bcube:2,4",
    "bcube:4,1",
    "torus2d:3,4",
    "torus2d:2,5",
    "torus2d:1,6",
]


def pairs(topology):
    """(source, destination) of all that differ."""
    source, destination = np.divmod(np.arange(topology.hosts**2), topology.hosts)
    differ = source != destination
    return source[differ], destination[differ]


def links(route):
    return [int(link) for link in route if link != NO_LINK]


@pytest.mark.parametrize(
    ("text", "hosts", "switches", "nics"),
    [
        ("bcube:3,2", 9, 6, 18),
        ("bcube:4,2", 16, 8, 32),
        ("bcube:32,2", 1024, 64, 2048),
        ("bcube:16,4", 65536, 16384, 262144),
        ("fat_tree:4", 16, 20, 16),
        ("fat_tree:16", 1024, 320, 1024),
        ("switch:9", 9, 1, 9),
        ("dense_gpu:16,8", 128, 1, 16),
        ("torus2d:4,4", 16, 0, 64),
        ("numa:4", 4, 0, 0),
    ],
)
def test_what_they_are_built_of(text, hosts, switches, nics):
    topology = parse(text)
    equipment = topology.equipment()
    assert (topology.hosts, equipment.switches, equipment.nics) == (hosts, switches, nics)
    assert topology.name == text


@pytest.mark.parametrize("k", [2, 3, 4])
def test_bcube_needs_k_fifths_of_the_switches_at_equal_ports(k):
    """Per host: k/n against 5/n (BML paper, Section 3.3); not so where the ports differ, as in Fig. 5 (BM-E10)."""
    cube, tree = BCube(8, k), FatTree(8)
    share = (cube.equipment().switches / cube.hosts) / (tree.equipment().switches / tree.hosts)
    assert share == pytest.approx(k / 5)
    assert BCube(32, 2).equipment().switches / FatTree(16).equipment().switches == pytest.approx(1 / 5)


@pytest.mark.parametrize("text", SMALL)
def test_routes_leave_the_source_and_enter_the_destination(text):
    """The first link is the source's alone, the last the destination's alone, and no link is used twice."""
    topology = parse(text)
    source, destination = pairs(topology)
    kinds = topology.link_kind()
    out, into = {}, {}
    for rail in range(topology.rails):
        for s, d, route in zip(
            source, destination, topology.route(source, destination, np.full_like(source, rail)), strict=True
        ):
            used = links(route)
            assert len(used) == len(set(used)) >= 1
            assert 0 <= min(used) <= max(used) < len(kinds)
            assert out.setdefault(used[0], s) == s
            assert into.setdefault(used[-1], d) == d
    assert len(set(out.values())) == len(set(into.values())) == topology.hosts


@pytest.mark.parametrize(("n", "k"), [(3, 2), (2, 4), (4, 1)])
def test_hosts_of_bcube_pass_on_digit_by_digit(n, k):
    """A hop goes up from a host and down to one that differs in the digit of that level only, on rail's level first."""
    topology = BCube(n, k)
    source, destination = pairs(topology)
    for rail in range(k):
        for s, d, route in zip(
            source, destination, topology.route(source, destination, np.full_like(source, rail)), strict=True
        ):
            position, levels = s, []
            for up, down in zip(*[iter(links(route))] * 2, strict=True):
                host, level = divmod(up, k)
                there, same = divmod(down - k * topology.hosts, k)
                assert (host, level) == (position, same)
                changed = [i for i in range(k) if position // n**i % n != there // n**i % n]
                assert changed == [level]
                position = there
                levels.append(level)
            assert position == d
            assert levels == [
                level for level in ((rail + i) % k for i in range(k)) if s // n**level % n != d // n**level % n
            ]


@pytest.mark.parametrize(("rows", "columns"), [(3, 4), (2, 5), (1, 6), (5, 5)])
def test_routes_of_a_torus_are_shortest_and_go_from_neighbour_to_neighbour(rows, columns):
    topology = Torus2D(rows, columns)
    source, destination = pairs(topology)
    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))
    for rail in (0, 1):
        for s, d, route in zip(
            source, destination, topology.route(source, destination, np.full_like(source, rail)), strict=True
        ):
            position = s
            for link in links(route):
                host, way = divmod(link, 4)
                assert host == position
                row, column = divmod(host, columns)
                position = (row + moves[way][0]) % rows * columns + (column + moves[way][1]) % columns
            assert position == d
            away = [abs(int(a) - int(b)) for a, b in zip(divmod(s, columns), divmod(d, columns), strict=True)]
            assert len(links(route)) == sum(min(a, size - a) for a, size in zip(away, (rows, columns), strict=True))
            along_row = [link % 4 < 2 for link in links(route)]
            assert along_row == sorted(along_row, reverse=rail == 0)  # rail 0 along the row first


@pytest.mark.parametrize("n", [2, 4, 6])
def test_routes_of_a_fat_tree_meet_in_one_switch(n):
    """The way up and the way down name the same aggregation port and the same core switch."""
    topology, half = FatTree(n), n // 2
    source, destination = pairs(topology)
    edge = [each // half for each in (source, destination)]
    pod = [each // half for each in edge]
    routes = topology.route(source, destination, np.zeros_like(source))
    assert (routes[:, 0] == source).all()
    assert (routes[:, 5] - 5 * topology.hosts == destination).all()
    near, far = edge[0] == edge[1], pod[0] != pod[1]
    assert ((routes[:, 1] == NO_LINK) == near).all()
    assert ((routes[:, 2] == NO_LINK) == ~far).all()
    up, down = (np.divmod(routes[~near, column] - column * topology.hosts, half) for column in (1, 4))
    np.testing.assert_array_equal(up[0], edge[0][~near])
    np.testing.assert_array_equal(down[0], edge[1][~near])
    np.testing.assert_array_equal(up[1], down[1])
    core_up, core_down = (routes[far, column] - column * topology.hosts for column in (2, 3))
    np.testing.assert_array_equal(core_up // half**2, pod[0][far])
    np.testing.assert_array_equal(core_down // half**2, pod[1][far])
    np.testing.assert_array_equal(core_up % half**2, core_down % half**2)


def test_links_inside_a_node_and_between_nodes():
    topology = parse("dense_gpu:2,3")
    kinds = topology.link_kind()
    inside, between = (topology.route(np.array([0]), np.array([to]), np.array([0]))[0] for to in (2, 4))
    assert [topology.kinds[kinds[link]] for link in links(inside)] == ["inside", "inside"]
    assert [topology.kinds[kinds[link]] for link in links(between)] == ["inside", "between", "between", "inside"]


@pytest.mark.parametrize(
    ("text", "ranks", "shape"),
    [
        ("bcube:3,2", 9, (3, 3)),
        ("bcube:3,2", 6, (3, 2)),
        ("bcube:3,2", 3, (3,)),
        ("bcube:3,2", 2, (2,)),
        ("bcube:3,2", 7, (7,)),  # no whole groups: alike
        ("bcube:2,3", 4, (2, 2)),
        ("fat_tree:4", 12, (2, 2, 3)),
        ("dense_gpu:3,4", 8, (4, 2)),
        ("dense_gpu:3,4", 1, (1,)),
        ("switch:5", 5, (5,)),
    ],
)
def test_ranks_fill_the_levels_in_order(text, ranks, shape):
    assert parse(text).shape_of(ranks) == shape


@pytest.mark.parametrize("name", topologies.names())
@given(data=st.data())
def test_levels_that_are_filled_hold_the_ranks(name, data):
    """Made for a number of ranks it holds them, and its text gives it back."""
    ranks = data.draw(st.integers(2, 40))
    try:
        topology = parse(name, ranks)
    except InputError:
        assert name == "bcube"
        assert all(round(ranks ** (1 / k)) ** k != ranks for k in range(2, 6))
        return
    assert topology.hosts >= ranks
    assert np.prod(topology.shape_of(ranks)) == ranks
    assert parse(topology.name) == topology
    assert len(dataclasses.astuple(topology)) == topology.name.partition(":")[2].count(",") + 1


@pytest.mark.parametrize(
    ("text", "ranks", "message"),
    [
        ("bcube:1,2", None, "'bcube:1,2': N = 1: at least 2"),
        ("bcube:3,0", None, "'bcube:3,0': K = 0"),
        ("bcube:2,25", None, "K = 25"),
        ("bcube:100,5", None, "10000000000 hosts: at most"),
        ("bcube:2,24", None, "16777216 hosts: at most"),
        ("bcube:3,2", 10, "'bcube:3,2' holds 1 to 9 ranks, not 10"),
        ("bcube:3,2", 0, "not 0"),
        ("bcube:3", None, "'bcube:3': write bcube:N,K"),
        ("bcube:x,2", None, "write bcube:N,K"),
        ("bcube", None, "write bcube:N,K"),
        ("bcube", 6, "6 is no n^k"),
        ("bcube", 0, "0 ranks: 1 to"),
        ("switch", 10**40, "ranks: 1 to"),
        ("switch:99999999999", None, "hosts: at most"),
        ("fat_tree:5", None, "N must be even"),
        ("fat_tree:0", None, "N = 0: at least 2"),
        ("torus2d:3,0", None, "COLUMNS = 0: at least 1"),
        ("dense_gpu:0,3", None, "M = 0: at least 1"),
        ("numa:0", None, "N = 0: at least 1"),
        ("hypercube:3", None, "'hypercube' does not exist; there are: bcube, dense_gpu"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_by_name(text, ranks, message):
    with pytest.raises(InputError) as caught:
        parse(text, ranks)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("speeds", "message"),
    [
        ({"alpha": -1.0}, "alpha -1 s"),
        ({"bandwidth": 0.0}, "bandwidth 0 B/s"),
        ({"bandwidth": {"inside": float("nan")}}, "bandwidth of 'inside' links nan B/s"),
        ({"latency": float("inf")}, "latency inf s"),
    ],
)
def test_speeds_that_are_none_are_refused(speeds, message):
    with pytest.raises(InputError) as caught:
        Speeds(**speeds)
    assert message in str(caught.value)


def test_speeds_by_kind_of_link():
    topology = parse("dense_gpu:2,2")
    bandwidth, latency = Speeds(0.0, {"inside": 8.0, "between": 2.0}, 0.5).of(topology)
    assert bandwidth.tolist() == [8.0] * 8 + [2.0] * 4
    assert set(latency) == {0.5}
    with pytest.raises(InputError, match="needs the bandwidth of its 'between' links too"):
        Speeds(0.0, {"inside": 8.0}).of(topology)
    with pytest.raises(InputError, match="has no 'inside' links, whose latency is given; it has: link"):
        Speeds(latency={"inside": 8.0}).of(parse("bcube:2,2"))

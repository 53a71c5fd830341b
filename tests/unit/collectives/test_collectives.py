"""Which collective goes over which topology, what its rounds send, and how BML lays out its pieces."""

import itertools

import numpy as np
import pytest

from gradsync import collectives, topologies
from gradsync.collectives import _level_by_level, bml
from gradsync.errors import InputError
from gradsync.topologies import NO_LINK, parse

CUBES = [(3, 2), (4, 2), (2, 3), (2, 4), (5, 1)]


@pytest.mark.parametrize("name", collectives.described())
def test_each_goes_over_the_topology_that_it_is_made_for(name):
    for ranks in (4, 9, 16):
        topology = parse(collectives.topology_of(name), ranks)
        kind = collectives.kinds(name, (ranks,))[0]
        shape = collectives.shape_on(name, topology, ranks, kind)
        for step in collectives.rounds(name, shape, kind=kind):
            assert len({len(each) for each in step if isinstance(each, np.ndarray)}) == 1
            assert step.rail.min() >= 0
            assert step.rail.max() < topology.rails
    assert list(collectives.rounds(name, (1,), kind=kind)) == []


@pytest.mark.parametrize(("n", "k"), CUBES)
def test_bml_is_2k_rounds_to_direct_neighbours_that_load_all_links_alike(n, k):
    """Each thread sends N/n^(w+1) pieces to n-1 neighbours on a level of its own; every link has as much to carry."""
    topology, shape, servers = parse(f"bcube:{n},{k}"), (n,) * k, n**k
    rounds = list(collectives.rounds("bml", shape))
    assert [step.adds for step in rounds] == [True] * k + [False] * k
    for w, step in zip([*range(k), *reversed(range(k))], rounds, strict=True):
        assert len(step.source) == k * servers * (n - 1)
        assert set(step.pieces) == {servers // n ** (w + 1)}
        route = topology.route(step.source, step.destination, step.rail)
        assert ((route != NO_LINK).sum(axis=1) == 2).all()
        load = np.bincount(route[route != NO_LINK], minlength=len(topology.link_kind()))
        assert set(load) == {n - 1}


def test_the_steps_of_fig_4_take_6_2_2_and_6_pieces():
    """16 T_C in all, 8/9 T_F (BML paper, Section 3.2)."""
    busiest = [
        int(np.bincount(step.source * 2 + step.rail, step.pieces).max()) for step in collectives.rounds("bml", (3, 3))
    ]
    assert busiest == [6, 2, 2, 6]


@pytest.mark.parametrize(("n", "k"), CUBES)
def test_each_piece_of_bml_has_a_name_and_what_is_exchanged_is_what_algorithm_1_says(n, k):
    """pieces(s, w, t): those of thread t that have the receiver's digits j = (i+t) mod k, i = 0..w (lines 17 to 25)."""
    shape, names = (n,) * k, bml.piece_ids((n,) * k)
    assert sorted(map(tuple, names)) == list(itertools.product(range(k), *[range(n)] * k))
    for number, step in enumerate(collectives.rounds("bml", shape)):
        w = number if step.adds else 2 * k - 1 - number
        for i in range(len(step.source)):
            mine = np.arange(step.first[i], step.first[i] + step.pieces[i])
            (thread,) = set(names[mine, 0])
            assert step.rail[i] == (w + thread) % k
            owner = step.destination[i] if step.adds else step.source[i]
            same = names[:, 0] == thread
            for j in ((each + thread) % k for each in range(w + 1)):
                same &= names[:, k - j] == owner // n**j % n
            np.testing.assert_array_equal(mine, np.flatnonzero(same))


def test_tensors_go_to_servers_in_turn():
    assert [collectives.server("ps_tensor", message, 3) for message in range(5)] == [0, 1, 2, 0, 1]
    assert {collectives.server(name, 7, 3) for name in ("ps_central", "ring", "native")} == {0}


@pytest.mark.parametrize(
    ("name", "text", "ranks", "message"),
    [
        ("bml", "switch:9", 9, "'bml' sends on all levels at once.*'switch:9'.*choose one of bcube, torus2d"),
        ("bml", "bcube:3,2", 6, "'bml' needs levels of one size, not 3 x 2"),
        ("bml", "bcube:3,2", 7, "'bml' sends on all levels at once, and 7 ranks fill no whole levels of.*'bcube:3,2'"),
        ("bml", "bcube:8193,1", 8193, "'bml' sends 67117056 messages a round: at most 67108864"),
        ("hierarchical", "switch:1048576", 1 << 20, "'hierarchical' sends .* messages a round: at most 67108864"),
        ("torus2d", "bcube:2,3", 8, "'torus2d' needs two levels, not 3"),
        ("ps_p2p", "switch:5000", 5000, "'ps_p2p'.*at most 4096 ranks"),
        ("ring", "bcube:3,2", 10, "holds 1 to 9 ranks, not 10"),
        ("gossip", "switch:4", 4, "'gossip' does not exist; there are: native, binary_tree"),
    ],
)
def test_what_a_topology_can_not_carry_is_refused_by_name(name, text, ranks, message):
    with pytest.raises(InputError, match=message):
        collectives.shape_on(name, parse(text), ranks)


def test_the_transfers_of_all_threads_count(monkeypatch):
    """9 servers of BCube(3, 2) send 2 neighbours each: 18 transfers a round of a thread, 36 of the two of BML."""
    monkeypatch.setattr(_level_by_level, "MOST_TRANSFERS", 35)
    list(collectives.rounds("hierarchical", (3, 3)))
    with pytest.raises(InputError, match="'bml' sends 36 messages a round: at most 35"):
        collectives.rounds("bml", (3, 3))
    monkeypatch.setattr(_level_by_level, "MOST_TRANSFERS", 36)
    list(collectives.rounds("bml", (3, 3)))


@pytest.mark.parametrize("shape", [(1, 3, 2), (3, 1, 2), (3, 2, 1)])
def test_a_level_of_one_is_no_level_of_a_torus(shape):
    rounds, expected = (list(collectives.rounds("torus2d", each)) for each in (shape, (3, 2)))
    assert len(rounds) == len(expected) == 6
    for step, other in zip(rounds, expected, strict=True):
        assert [np.asarray(each).tolist() for each in step] == [np.asarray(each).tolist() for each in other]


def test_every_topology_is_made_for_a_collective_or_holds_one():
    """A native collective takes the levels as they are."""
    for name in topologies.names():
        topology = parse(name, 4)
        assert collectives.shape_on("native", topology, 4) == topology.shape_of(4)
        assert collectives.shape_on("ring", topology, 4) == topology.shape_of(4)

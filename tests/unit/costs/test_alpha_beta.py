"""Table II against the rounds of its algorithms, and the costs of a network made of it."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync import collectives
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.errors import InputError
from gradsync.rounds import flow_level
from gradsync.topologies import Speeds
from gradsync.topologies.switch import Switch

ALPHA, BETA, GAMMA = 4.5e-5, 1.1e-9, 2.3e-10
POWERS = [2, 4, 8, 16, 32, 64]
TABLE_2 = {
    "binary_tree": lambda n: (2 * ALPHA * np.log2(n), (2 * BETA + GAMMA) * np.log2(n)),
    "recursive_doubling": lambda n: (ALPHA * np.log2(n), (BETA + GAMMA) * np.log2(n)),
    "halving_doubling": lambda n: (2 * ALPHA * np.log2(n), 2 * BETA - (2 * BETA + GAMMA) / n + GAMMA),
    "ring": lambda n: (2 * (n - 1) * ALPHA, 2 * (n - 1) / n * BETA + (n - 1) / n * GAMMA),
}


@pytest.mark.parametrize("name", TABLE_2)
def test_the_formulas_are_the_papers(name):
    for n in POWERS:
        cost = alpha_beta.ALGORITHMS[name](n, ALPHA, BETA, GAMMA)
        assert (cost.a, cost.b) == pytest.approx(TABLE_2[name](n), rel=1e-12)


def of_rounds(name, n):
    """Simulated round by round on a switch."""
    speeds = Speeds(alpha=ALPHA, bandwidth=1 / BETA)
    return flow_level.cost(name, Switch(n), speeds, add_seconds_per_byte=GAMMA)


@pytest.mark.parametrize("name", TABLE_2)
def test_the_rounds_take_what_table_2_says(name):
    for n in range(2, 65) if name == "ring" else POWERS:
        cost, line = alpha_beta.ALGORITHMS[name](n, ALPHA, BETA, GAMMA), of_rounds(name, n).line
        assert (line.a, line.b) == pytest.approx((cost.a, cost.b), rel=1e-12)


def test_the_tree_of_other_numbers_has_a_level_for_the_rest():
    """ceil(log2 N) levels, up and down."""
    for n in range(2, 65):
        cost, levels = of_rounds("binary_tree", n), np.ceil(np.log2(n))
        assert cost.rounds == 2 * levels
        assert (cost.line.a, cost.line.b) == pytest.approx((2 * ALPHA * levels, (2 * BETA + GAMMA) * levels))


@pytest.mark.parametrize("name", ["recursive_doubling", "halving_doubling"])
def test_other_numbers_take_two_more_rounds_of_the_whole_message(name):
    """Those beyond a power of two hand it to others, which add it, and get the sum back."""
    for n in set(range(2, 65)) - set(POWERS):
        core = 2 ** int(np.log2(n))
        cost, before = of_rounds(name, n), of_rounds(name, core)
        assert cost.rounds == before.rounds + 2
        assert cost.line.a == pytest.approx(before.line.a + 2 * ALPHA)
        assert cost.line.b == pytest.approx(before.line.b + 2 * BETA + GAMMA)


def test_a_round_too_many_would_be_seen(monkeypatch):
    ring = collectives.get("ring")
    whole = ring.rounds
    monkeypatch.setattr(ring, "rounds", lambda shape, root: [*whole(shape, root), list(whole(shape, root))[-1]])
    cost = alpha_beta.ring(8, ALPHA, BETA, GAMMA)
    assert of_rounds("ring", 8).seconds(1000) != pytest.approx(cost.seconds(1000), rel=1e-3)


def test_the_startups_that_the_paper_measured():
    """90.52, 271.56 and 633.64 us at 2, 4 and 8 nodes: all 2(N-1) times 45.26 us."""
    for n, microseconds in {2: 90.52, 4: 271.56, 8: 633.64}.items():
        assert alpha_beta.ring(n, 45.26e-6, BETA).a * 1e6 == pytest.approx(microseconds, rel=1e-9)


def test_all_to_all_and_the_trees_take_what_their_rounds_take():
    for n in range(2, 20):
        network = alpha_beta.network(n, ALPHA, BETA, GAMMA)
        for kind, name in (("all_to_all", "pairwise"), ("broadcast", "binary_tree"), ("reduce", "binary_tree")):
            if kind != "all_to_all" and n not in POWERS:
                continue
            topology, speeds = Switch(n), Speeds(ALPHA, 1 / BETA)
            cost = flow_level.cost(name, topology, speeds, kind=kind, root=n // 2, add_seconds_per_byte=GAMMA)
            assert (cost.line.a, cost.line.b) == pytest.approx((network.of(kind).a, network.of(kind).b))


def test_a_network_has_a_cost_for_every_kind():
    network = alpha_beta.network(8, ALPHA, BETA, GAMMA)
    whole, scatter, gather = (network.of(kind).seconds(8e6) for kind in ("all_reduce", "reduce_scatter", "all_gather"))
    assert scatter + gather == pytest.approx(whole, rel=1e-12)
    assert network.of("send") == Linear(ALPHA, BETA, "point to point")
    with pytest.raises(InputError, match="'gossip'"):
        network.of("gossip")
    with pytest.raises(InputError, match=r"'tree'.*binary_tree"):
        alpha_beta.network(8, ALPHA, BETA, all_reduce="tree")
    with pytest.raises(InputError, match="0 ranks"):
        alpha_beta.network(0, ALPHA, BETA)


def test_the_other_costs_around_a_measured_all_reduce():
    measured = alpha_beta.ring(8, ALPHA, BETA)
    around = alpha_beta.around(measured, 8)
    assert around.of("all_reduce") == measured
    assert around.of("send").seconds(1e6) == pytest.approx(ALPHA + BETA * 1e6, rel=1e-9)
    assert around.of("all_gather").seconds(8e6) == pytest.approx(7 * (ALPHA + BETA * 1e6), rel=1e-9)


@pytest.mark.parametrize(("a", "b"), [(-1, 0), (0, -1), (float("nan"), 0), (0, float("inf"))])
def test_costs_that_are_no_costs_are_refused(a, b):
    with pytest.raises(InputError, match="finite and not negative"):
        Linear(a, b)


def test_groups_of_an_axis_are_rings_of_the_same_steps():
    """A ring of 2 takes 2 of the 14 steps of a ring of 8; each carries a half of the message instead of an eighth."""
    whole = alpha_beta.network(8, ALPHA, BETA)
    known = alpha_beta.with_axes(whole, 8, {"node": 2, "local": 4})
    pair = alpha_beta.network(2, ALPHA, BETA)
    for kind in ("all_reduce", "reduce_scatter", "all_gather"):
        for size in (0, 1 << 20):
            assert known.of(f"{kind}@node").seconds(size) == pytest.approx(pair.of(kind).seconds(size))
    assert known.of("all_reduce") == whole.of("all_reduce")
    assert alpha_beta.with_axes(whole, 8, {}) is whole


def test_groups_need_a_known_all_reduce():
    with pytest.raises(InputError, match="no cost for 'all_reduce'"):
        alpha_beta.with_axes(Network({}), 8, {"node": 2, "local": 4})

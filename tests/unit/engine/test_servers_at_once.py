"""Messages to several servers at once, priced as wholes: each takes what its transfers take of every rank's link."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync import collectives
from gradsync.costs import Linear, Network
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine.bounds import model_bound_seconds
from gradsync.engine.simulate import simulate
from gradsync.rounds import flow_level
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.updates import ssgd
from tiny_workloads import workload

EXACT = 1e-12
NOTHING_SLOWER = Interference(points=(InterferencePoint(bytes=1, computation=1, communication=1),))


def on_lanes(algorithm, sizes, starts, lanes, ranks=3):
    load = workload(sizes, np.diff(starts, prepend=0.0).tolist(), dtype="float64")
    messages = tuple(Message(i, i, f"lane{i % lanes}") for i in range(len(sizes)))
    return load, ssgd.plan("servers", load, messages, ranks, algorithm=algorithm)


def ends(load, plan, cost, **options):
    trace = simulate(plan, load, Network({"all_reduce": cost}), turns=1, **options)
    ends = {span.operation: span.end for span in trace.spans if span.rank == 0 and span.verb == "collective"}
    return [ends[f"message{i}"] for i in range(len(ends))]


def test_all_push_to_the_server_then_all_pull_from_it():
    push, pull = collectives.phases("ps_central", (5,), 2)
    assert (push.share, pull.share) == (0.5, 0.5)
    assert push.parts.tolist() == [[0.25, 0.25, 0.0, 0.25, 0.25], [0.0, 0.0, 1.0, 0.0, 0.0]]
    assert pull.parts.tolist() == push.parts[::-1].tolist()


@pytest.mark.parametrize(("name", "shape"), [("ring", (6,)), ("ps_p2p", (9,)), ("bml", (3, 3)), ("torus2d", (2, 3))])
def test_ranks_that_do_as_much_all_the_time_are_one_phase(name, shape):
    (phase,) = collectives.phases(name, shape)
    assert phase.share == 1.0
    assert (phase.parts == 1.0).all()


@pytest.mark.parametrize("name", collectives.names())
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_in_every_phase_some_way_is_full(name, ranks):
    phases = collectives.phases(name, (ranks,))
    assert not phases or sum(share for share, _ in phases) == pytest.approx(1.0, rel=EXACT)
    assert all(parts.max() == 1.0 and parts.min() >= 0.0 for _, parts in phases)


def test_three_servers_at_once_are_as_fast_as_transfer_by_transfer():
    """Three messages of 16 elements, each 64 s alone: out of each rank 2 x 16 B go to the others and 2 x 16 B back."""
    load, plan = on_lanes("ps_tensor", [16] * 3, [1.0, 1.0, 1.0], 3)
    links = {"topology": parse("switch:3"), "speeds": Speeds(0.0, 1.0)}
    cost = flow_level.cost("ps_tensor", **links).line
    assert cost.seconds(16) == pytest.approx(64.0, rel=EXACT)
    one_by_one = simulate(plan, load, Network({}), **links).iteration_seconds()
    assert ends(load, plan, cost) == pytest.approx([65.0] * 3, rel=EXACT)
    assert one_by_one == pytest.approx(65.0, rel=EXACT)
    # a third of all transfers takes each rank's way
    assert model_bound_seconds(plan, load, Network({"all_reduce": cost})) == pytest.approx(65.0, rel=EXACT)


def test_two_messages_to_one_server_meet_where_both_push_or_both_pull():
    cost = Linear(0.0, 1.0)
    load, plan = on_lanes("ps_central", [40, 40], [0.0, 0.0], 2)
    assert ends(load, plan, cost) == pytest.approx([80.0, 80.0], rel=EXACT)
    # the second pushes while the first is pulled
    load, plan = on_lanes("ps_central", [40, 40], [0.0, 20.0], 2)
    assert ends(load, plan, cost) == pytest.approx([40.0, 60.0], rel=EXACT)
    # for 10 s both push, each at half speed; then the first, with 5 left to push, goes on
    load, plan = on_lanes("ps_central", [40, 40], [0.0, 10.0], 2)
    first, second = ends(load, plan, cost)
    # from 10: 10 and 20 to push at half speed each: the first has at 30, pulls alone until 50; the second pushes its
    # other 10 until 40, then both pull at half speed: the first its other 10 until 60, the second then 10 more
    assert (first, second) == pytest.approx((60.0, 70.0), rel=EXACT)


@pytest.mark.parametrize("lanes", [1, 2, 3])
def test_interference_that_slows_nothing_changes_nothing(lanes):
    load, plan = on_lanes("ps_tensor", [32, 8, 24, 16], [0.0, 3.0, 4.0, 9.0], lanes)
    slowed = ends(load, plan, Linear(2.0, 0.5), interference=NOTHING_SLOWER)
    assert slowed == pytest.approx(ends(load, plan, Linear(2.0, 0.5)), rel=EXACT)


def test_one_message_at_a_time_takes_its_time_alone():
    load, plan = on_lanes("ps_tensor", [32, 8], [1.0, 1.0], 1)
    assert ends(load, plan, Linear(2.0, 0.5)) == pytest.approx([1 + 2 + 16, 1 + 2 + 16 + 2 + 4], rel=EXACT)

"""What collectives cost on topologies: the papers' synchronisation times, loads by hand, and transfers one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tiny_plans as tiny
from gradsync import collectives
from gradsync.benchmarks import collective_scaling
from gradsync.costs import Linear, Network
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine.bounds import links_bound_seconds, model_bound_seconds
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError, RunError
from gradsync.plan import Buffer, Collective, Plan, Recv, Ref, Role, Send, Tensor
from gradsync.rounds import flow_level
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.updates import ssgd
from tiny_workloads import workload

EXACT = 1e-12


def gst(name, text, ranks=None):
    """Gradient synchronisation time in units of T_F, the time of the whole gradient on one link."""
    return flow_level.cost(name, parse(text), Speeds(), ranks).line.b


@pytest.mark.parametrize(("n", "k"), [(3, 2), (4, 2), (4, 3), (32, 2), (16, 4)])
def test_bml_takes_what_the_paper_says(n, k):
    servers = n**k
    assert gst("bml", f"bcube:{n},{k}") == pytest.approx(2 * (servers - 1) / (k * servers), rel=EXACT)


@pytest.mark.parametrize("name", ["ps_p2p", "ring", "hierarchical"])
@pytest.mark.parametrize("n", [4, 6, 16])
def test_a_fat_tree_never_blocks(name, n):
    servers = n**3 // 4
    assert gst(name, f"fat_tree:{n}") == pytest.approx(2 * (servers - 1) / servers, rel=EXACT)


@pytest.mark.parametrize(("n", "k", "ratio"), [(3, 2, 1.5), (4, 2, 1.6), (32, 2, 1.939), (4, 3, 2.286)])
def test_parameter_servers_on_bcube_are_not_exactly_half_as_fast_as_bml(n, k, ratio):
    """2 (n-1)/n T_F, whatever k is: a message crosses as many links as digits differ, all links are alike (BM-E09)."""
    servers = gst("ps_p2p", f"bcube:{n},{k}")
    assert servers == pytest.approx(2 * (n - 1) / n, rel=EXACT)
    assert servers / gst("bml", f"bcube:{n},{k}") == pytest.approx(ratio, abs=1e-3)


def test_one_server_for_all_is_the_number_of_ranks_slower():
    assert gst("ps_central", "switch:8") == pytest.approx(2 * 7)
    assert gst("ps_tensor", "bcube:3,2") == pytest.approx(2 * 6)  # 6 of 8 come in over the server's link of level 1


def test_a_tree_of_nodes_by_hand():
    """Two nodes of four GPUs, 8 B/s inside and 1 B/s between; a message of 16 B in 8 pieces of 2 B.

    Reduce-scatter in a node: 3 parts of 2 pieces out of each GPU, 1.5 s. Between: each of 4 GPUs a piece of 2 B over
    the node's link, 8 s. The same way back. Latencies: 2 links of 0.25 s inside, 2 of 0.25 s and 2 of 1 s between.
    """
    speeds = Speeds(0.5, {"inside": 8.0, "between": 1.0}, {"inside": 0.25, "between": 1.0})
    cost = flow_level.cost("hierarchical", parse("dense_gpu:2,4"), speeds, add_seconds_per_byte=0.125)
    assert cost.rounds == 4
    assert cost.transfers == 2 * (8 * 3 + 8)
    assert cost.line.a == pytest.approx(4 * 0.5 + 2 * 0.5 + 2 * 2.5)
    assert cost.seconds(16.0) - cost.line.a == pytest.approx(2 * (1.5 + 8.0) + 0.125 * (12 + 2))
    assert cost.sent * 16 == pytest.approx(2 * (12 + 2))
    assert (cost.link_kind, cost.link_load * 16) == ("inside", pytest.approx(28.0))


def test_a_line_in_the_message_and_nothing_for_one_rank():
    cost = flow_level.cost("ring", parse("switch:5"), Speeds(0.5, 4.0, 0.25))
    assert cost.line.a == pytest.approx(8 * (0.5 + 0.5))
    assert cost.seconds(100.0) == pytest.approx(cost.line.a + 100.0 * 2 * 4 / 5 / 4.0)
    for name in collectives.names():
        network = "numa:6" if collectives.in_memory(name) else "bcube:3,2"
        alone = flow_level.cost(name, parse(network), Speeds(1.0, 1.0, 1.0), 1)
        assert (alone.line.a, alone.line.b, alone.rounds, alone.sent, alone.link_load) == (0, 0, 0, 0, 0)


def test_rounds_that_are_alike_are_looked_at_once_and_chunks_change_nothing(monkeypatch):
    speeds = Speeds(0.5, 2.0, 0.25)
    texts = {"ring": "torus2d:3,4", "torus2d": "torus2d:3,4", "bml": "bcube:3,2", "ps_p2p": "fat_tree:4"}
    costs = {name: flow_level.cost(name, parse(text), speeds) for name, text in texts.items()}
    looked = []
    whole = flow_level._traffic
    monkeypatch.setattr(flow_level, "_traffic", lambda *arguments: looked.append(1) or whole(*arguments))
    for name, text in texts.items():
        looked.clear()
        assert flow_level.cost(name, parse(text), speeds) == costs[name]
        assert len(looked) == {"ring": 1, "torus2d": 3}.get(name, costs[name].rounds)
    monkeypatch.setattr(flow_level, "CHUNK", 5)
    monkeypatch.setattr(flow_level, "_same_arrays", lambda one, other: False)
    for name, text in texts.items():
        looked.clear()
        again = flow_level.cost(name, parse(text), speeds)
        assert (again.line.a, again.line.b) == pytest.approx((costs[name].line.a, costs[name].line.b), rel=EXACT)
        assert (again.transfers, again.link_load) == (costs[name].transfers, pytest.approx(costs[name].link_load))
        assert len(looked) == costs[name].rounds


@pytest.mark.parametrize("name", ["ring", "torus2d", "binary_tree"])
def test_rounds_one_by_one_take_what_all_of_them_take(name):
    topology, speeds = parse("dense_gpu:3,2"), Speeds(alpha=0.5, bandwidth={"inside": 8.0, "between": 2.0})
    shape, size = topology.shape, 60.0
    piece = size / collectives.get(name).pieces(shape)
    seconds = [flow_level.round_seconds(step, piece, topology, speeds) for step in collectives.rounds(name, shape)]
    assert sum(seconds) == pytest.approx(flow_level.cost(name, topology, speeds).seconds(size))


def test_what_can_not_be_carried_is_refused():
    with pytest.raises(InputError, match="no links of their own"):
        flow_level.cost("bml", parse("fat_tree:4"), Speeds())
    with pytest.raises(InputError, match="holds 1 to 9 ranks, not 10"):
        flow_level.cost("ring", parse("bcube:3,2"), Speeds(), 10)
    with pytest.raises(InputError, match="has no 'inside' links"):
        flow_level.cost("ring", parse("bcube:3,2"), Speeds(bandwidth={"inside": 1.0}))


# Transfers one by one

SPEEDS = Speeds(0.5, 1.0)
BALANCED = [  # collectives and topologies on which ranks stay in step and the links of a round are evenly loaded
    ("ring", "switch:7"),
    ("ring", "bcube:3,2"),
    ("ring", "torus2d:3,4"),
    ("ring", "fat_tree:4"),
    ("ring", "dense_gpu:2,4"),
    ("bml", "bcube:3,2"),
    ("bml", "bcube:2,3"),
    ("bml", "bcube:5,1"),
    ("hierarchical", "bcube:3,2"),
    ("hierarchical", "dense_gpu:2,4"),
    ("hierarchical", "fat_tree:4"),
    ("torus2d", "torus2d:3,4"),
    ("ps_p2p", "switch:6"),
    ("ps_p2p", "bcube:3,2"),
    ("ps_p2p", "dense_gpu:2,3"),
    ("ps_central", "switch:6"),
    ("ps_tensor", "fat_tree:4"),
    ("binary_tree", "switch:8"),
    ("recursive_doubling", "switch:8"),
    ("halving_doubling", "switch:8"),
    ("halving_doubling", "bcube:2,3"),
]


def one_by_one(name, topology, speeds, ranks=None, gamma=0.0, elements=4):
    """(seconds, bytes) of one all-reduce whose transfers share their links; so many elements a piece."""
    ranks = ranks or topology.hosts
    shape = collectives.shape_on(name, topology, ranks)
    elements *= collectives.get(name).pieces(shape)
    plan = tiny.synchronous(ranks, [elements], algorithm=name, shape=shape)
    load = workload([8 * elements], [0.0], dtype="float64", names=["layer1"])
    trace = simulate(plan, load, Network({}), turns=1, add_seconds_per_byte=gamma, topology=topology, speeds=speeds)
    return max(span.end for span in trace.spans), 8 * elements


@pytest.mark.parametrize(("name", "text"), BALANCED)
def test_where_ranks_stay_in_step_transfers_take_what_the_rounds_take(name, text):
    for gamma in (0.0, 0.125):
        seconds, size = one_by_one(name, parse(text), SPEEDS, gamma=gamma)
        cost = flow_level.cost(name, parse(text), SPEEDS, add_seconds_per_byte=gamma)
        assert seconds == pytest.approx(cost.seconds(size), rel=EXACT)


def test_links_of_different_speed_and_latencies_of_the_route():
    speeds = Speeds(0.5, {"inside": 8.0, "between": 1.0}, {"inside": 0.25, "between": 1.0})
    seconds, size = one_by_one("hierarchical", parse("dense_gpu:2,4"), speeds)
    assert seconds == pytest.approx(flow_level.cost("hierarchical", parse("dense_gpu:2,4"), speeds).seconds(size))


def test_ranks_that_have_nothing_to_wait_for_disturb_the_others():
    """On 7 ranks rank 3 has nobody to fold in: its first exchange shares rank 2's link with what is folded into 2."""
    seconds, size = one_by_one("recursive_doubling", parse("switch:7"), SPEEDS)
    in_step = flow_level.cost("recursive_doubling", parse("switch:7"), SPEEDS).seconds(size)
    assert 1.2 < seconds / in_step < 1.6


@settings(max_examples=40)
@given(data=st.data())
def test_no_link_carries_more_than_its_bandwidth(data):
    """Nothing takes less than its most loaded link needs for the bytes that it carries."""
    name = data.draw(st.sampled_from(collectives.names()))
    text = data.draw(
        st.sampled_from(["switch:8", "bcube:3,2", "bcube:2,3", "torus2d:2,4", "dense_gpu:3,2", "fat_tree:4"])
    )
    topology = parse(text)
    ranks = data.draw(st.integers(2, topology.hosts))
    try:
        cost = flow_level.cost(name, topology, Speeds(0.0, 2.0), ranks)
    except InputError:
        return
    speeds = Speeds(data.draw(st.sampled_from([0.0, 0.5])), 2.0, data.draw(st.sampled_from([0.0, 0.125])))
    seconds, size = one_by_one(name, topology, speeds, ranks, elements=data.draw(st.integers(1, 3)))
    assert seconds >= cost.link_load * size / 2.0 * (1 - 1e-9)


def test_messages_on_two_lanes_share_their_links():
    """Two messages of 32 B at once on a ring of 2, 4 rounds of 16 B: each round takes twice as long."""
    load = workload([32, 32], [1.0, 0.0], dtype="float64", names=["layer2", "layer1"])
    for lanes, seconds in ((1, 2 * 2 * (0.5 + 16.0)), (2, 2 * (0.5 + 32.0))):
        messages = tuple(Message(i, i, f"lane{i % lanes}") for i in range(2))
        plan = ssgd.plan("lanes", load, messages, 2, algorithm="ring")
        trace = simulate(plan, load, Network({}), topology=parse("switch:2"), speeds=SPEEDS)
        assert trace.iteration_seconds() == pytest.approx(1.0 + seconds, rel=EXACT)


def test_servers_of_their_own_are_bounded_by_the_links_that_each_uses():
    """Three messages of 16 B to three servers at once: each rank's 32 B to two others and 32 B back share no link."""
    load = workload([16] * 3, [1.0, 0.0, 0.0], dtype="float64", names=["layer3", "layer2", "layer1"])
    plan = ssgd.plan("servers", load, tuple(Message(i, i, f"lane{i}") for i in range(3)), 3, algorithm="ps_tensor")
    links = {"topology": parse("switch:3"), "speeds": Speeds(0.0, 1.0)}
    trace = simulate(plan, load, Network({}), **links)
    assert trace.iteration_seconds() == pytest.approx(1.0 + 64.0, rel=EXACT)
    assert links_bound_seconds(plan, load, **links) == pytest.approx(1.0 + 64.0, rel=EXACT)
    as_messages = Network({"all_reduce": flow_level.cost("ps_tensor", **links).line})
    assert model_bound_seconds(plan, load, as_messages) == pytest.approx(1.0 + 64.0)  # that of all three, not 3 x 64


def test_a_server_may_have_more_sends_in_a_row_than_calls_can_nest():
    seconds, size = one_by_one("ps_central", parse("switch:400"), SPEEDS)
    assert seconds == pytest.approx(2 * (0.5 + 399 * size), rel=1e-9)


def test_a_native_collective_takes_its_cost_alone_and_shares_the_links_of_a_ring():
    load = workload([32, 32], [1.0, 0.0], dtype="float64", names=["layer2", "layer1"])
    network = Network({"all_reduce": Linear(0.5, 0.25)})
    for lanes, seconds in ((1, 2 * (0.5 + 8.0)), (2, 0.5 + 16.0)):
        messages = tuple(Message(i, i, f"lane{i % lanes}") for i in range(2))
        plan = ssgd.plan("lanes", load, messages, 4)
        trace = simulate(plan, load, network, topology=parse("torus2d:2,2"), speeds=Speeds(9.0, 3.0))
        assert trace.iteration_seconds() == pytest.approx(1.0 + seconds, rel=EXACT)
        assert trace.ranks == (0, 1, 2, 3)
    alone = ssgd.plan("alone", load, (Message(0, 1),), 1)
    trace = simulate(alone, load, network, topology=parse("switch:1"), speeds=SPEEDS)
    assert trace.iteration_seconds() == pytest.approx(1.0 + 0.5 + 16.0, rel=EXACT)  # no links at all


def test_a_ring_that_crosses_a_link_twice_takes_twice_of_it():
    """Ranks 0, 2, 1, 3 on two nodes of two: two hops leave each node over its link, and a transfer does too.

    The sum alone has 5 of the 10 B/s between nodes for each of its two hops, and takes its 8 s. With the transfer three
    share the link, 10/3 B/s each: the sum takes 12 s, the transfer of 80 B has 40 B left then and 4 s to go.
    """
    ring, ref = (0, 2, 1, 3), (Ref("values", 0, 20),)
    roles = []
    for rank in range(4):
        body: list = [Collective(name="sum", lane="a", ranks=ring, reads=ref, writes=ref)]
        if rank == 0:
            body.append(Send(name="send", lane="b", to=2, reads=ref))
        if rank == 2:
            body.append(Recv(name="recv", lane="b", source=0, writes=ref))
        roles.append(Role(f"rank{rank}", (rank,), tuple(body)))
    tensors, buffers = (Tensor("layer1", 0, 20),), (Buffer("values", 20),)
    plan = Plan(name="twice", ranks=4, tensors=tensors, buffers=buffers, roles=tuple(roles))
    links = {"topology": parse("dense_gpu:2,2"), "speeds": Speeds(0.0, {"inside": 100.0, "between": 10.0})}
    network = Network({"all_reduce": Linear(0.0, 0.1)})
    trace = simulate(plan, workload([80], [0.0]), network, turns=1, **links)
    ends = {span.operation: span.end for span in trace.spans}
    assert ends == pytest.approx({"sum": 12.0, "send": 16.0, "recv": 16.0})


def test_computation_and_transfers_over_links_slow_one_another_down_too():
    """10 s of backward beside 2 rounds of a ring of 2: 1 + 8 s alone, twice as long beside computation."""
    load = workload([8, 8], [0.0, 10.0])
    plan = ssgd.plan("beside", load, (Message(0, 0), Message(1, 1)), 2, algorithm="ring")
    ends = {}
    for factor in (1.0, 2.0):
        slowed = Interference(points=(InterferencePoint(bytes=1, computation=1.0, communication=factor),))
        links = {"topology": parse("switch:2"), "speeds": SPEEDS}
        trace = simulate(plan, load, Network({}), turns=1, interference=slowed, **links)
        ends[factor] = {span.operation: span.end for span in trace.of(0)}
    assert ends[1.0]["message0"] == pytest.approx(1.0 + 8.0, rel=EXACT)
    assert ends[2.0]["message0"] == pytest.approx(10.0 + 4.0, rel=EXACT)  # 5 s of work done by 10 s, then alone
    assert ends[2.0]["ready:layer1"] == 10.0


def test_a_topology_needs_speeds_and_room_for_the_ranks():
    plan, load = tiny.synchronous(4, [8], algorithm="ring"), workload([64], [1.0], dtype="float64", names=["layer1"])
    with pytest.raises(InputError, match="a topology and the speeds of its links go together"):
        simulate(plan, load, Network({}), topology=parse("switch:4"))
    with pytest.raises(InputError, match="'switch:3' holds 1 to 3 ranks, not 4"):
        simulate(plan, load, Network({}), topology=parse("switch:3"), speeds=SPEEDS)


# The benchmark of its scaling


def test_the_power_of_growth_is_the_slope_of_the_logarithms():
    transfers = [100, 1000, 10_000, 100_000]
    assert collective_scaling.slope(transfers, [n**1.2 for n in transfers]) == pytest.approx(1.2)
    assert collective_scaling.slope(transfers, [1.0, 1.0, 1.0, 100.0], 10_000) == pytest.approx(2.0)


def test_each_size_runs_in_a_process_of_its_own(monkeypatch):
    monkeypatch.setattr(collective_scaling, "CUBES", ("2,2", "3,2"))
    monkeypatch.setattr(collective_scaling, "LARGEST", "3,2")
    monkeypatch.setattr(collective_scaling, "CHECKED", "2,2")
    monkeypatch.setattr(collective_scaling, "MANY_TRANSFERS", 1)
    rows = collective_scaling.rows()
    assert [row.get("servers") for row in rows] == [4, 9, None, None, 4]
    assert [row["transfers"] for row in rows[:2]] == [32, 144]
    assert all(np.isfinite(row["ratio"]) and isinstance(row["met"], bool) for row in rows)
    assert 10e6 < rows[1]["peak_bytes"] < 1e9
    with pytest.raises(RunError, match=r"simulate BCube\(1,2\): .*at least 2"):
        collective_scaling._in_a_process("simulate", "1,2")

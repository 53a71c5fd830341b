"""Messages at the same time: what the simulator makes of them, by hand and by the link's bound."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsync.costs import Linear, Network
from gradsync.costs.contention import Contended, capacity, host_seconds
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine.bounds import links_bound_seconds, model_bound_seconds
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.rounds.lowering import lowered
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.updates import ssgd
from tiny_workloads import costs, workload, workloads


def at_once(sizes, starts, cost, **options):
    """End of each message, each on a lane of its own and ready at its start."""
    gaps = [starts[0], *(b - a for a, b in pairwise(starts))]
    load = workload(sizes, gaps)
    plan = ssgd.plan("at once", load, tuple(Message(i, i, f"network{i}") for i in range(len(sizes))), 4)
    trace = simulate(plan, load, Network({"all_reduce": cost}), turns=1, **options)
    ends = {span.operation: span.end for span in trace.spans if span.verb == "collective"}
    return [ends[f"message{i}"] for i in range(len(sizes))]


def same(seconds):
    return pytest.approx(seconds, rel=1e-12)


# T(m) = 3 + m/4, so that 80 bytes transfer for 20 s. Two start at 0: each at the rate min(1, X/2).
@pytest.mark.parametrize(("link", "rate"), [(1.0, 1 / 2), (1 / 0.75, 2 / 3), (1 / 0.6, 5 / 6), (2.0, 1.0), (5.0, 1.0)])
def test_two_at_once_share_what_the_link_carries(link, rate):
    assert at_once([80, 80], [0, 0], Contended(Linear(3, 0.25), link)) == same([3 + 20 / rate] * 2)


@pytest.mark.parametrize(("link", "rate"), [(1.0, 1 / 2), (1 / 0.75, 2 / 3), (1 / 0.6, 5 / 6)])
def test_the_second_starts_later(link, rate):
    """Alone for 8 s; then both at `rate`; the rest of the longer one alone again."""
    first, second = at_once([80, 120], [0, 8], Contended(Linear(3, 0.25), link))
    assert first == same(3 + 8 + 12 / rate)
    done = first - 11  # seconds that the second has shared
    assert second == same(first + (30 - done * rate))


def test_three_of_different_sizes_and_starts():
    """X = 2: 40 s, 20 s and 4 s of transfer from 2, 12 and 22 on; two have full speed, three get 2/3 each."""
    ends = at_once([160, 80, 16], [0, 10, 20], Contended(Linear(2, 0.25), 2.0))
    # at 22 there are 20, 10 and 4 left; at 28 16, 6 and 0; then both at full speed
    assert ends == same([28 + 16, 28 + 6, 28])


def test_what_the_host_does_is_done_for_one_after_the_other():
    """Of 3 s of start-up 2 are the host's: two that start at once are through with them at 4, then 1 s of latency."""
    assert at_once([80, 80], [0, 0], Contended(Linear(3, 0.25), 2.0, 2.0)) == same([4 + 1 + 20] * 2)
    assert at_once([80], [0], Contended(Linear(3, 0.25), 2.0, 2.0)) == same([23])  # alone as ever
    # the second starts when the first has had 1 of its 2 s: they share until 3, it has the cores alone until 4
    assert at_once([80, 80], [0, 1], Contended(Linear(3, 0.25), 2.0, 2.0)) == same([3 + 1 + 20, 4 + 1 + 20])
    # more than the start-up itself it can't be
    assert at_once([80, 80], [0, 0], Contended(Linear(3, 0.25), 2.0, 50.0)) == same([6 + 20] * 2)


def test_computation_slows_messages_on_a_shared_link():
    """Factor 2 while a rank computes; the update is nothing, so that is until 8."""
    slowed = Interference(points=(InterferencePoint(bytes=1, computation=1, communication=2),))
    # the second ready is at 8: until then the first goes at half speed, after it two share X = 4/3
    first, second = at_once([80, 80], [0, 8], Contended(Linear(0, 0.25), 4 / 3), interference=slowed)
    assert first == same(8 + 16 * 3 / 2)
    assert second == same(first + 4)
    # the host's part too: 2 s take 4
    first, _ = at_once([80, 80], [0, 8], Contended(Linear(2, 0.25), 2, 2.0), interference=slowed)
    assert first == same(4 + 4 + 18)


@given(load=workloads(), cost=costs, lanes=st.integers(1, 4))
@settings(max_examples=60)
def test_capacity_1_is_a_link_of_which_nothing_is_known(load, cost, lanes):
    messages = tuple(Message(i, i, f"network{i % lanes}") for i in range(len(load.layers)))
    plan = ssgd.plan("lanes", load, messages, 4)
    known = simulate(plan, load, Network({"all_reduce": Contended(cost, 1.0)}))
    assert known.spans == simulate(plan, load, Network({"all_reduce": cost})).spans


@given(
    load=workloads(),
    cost=costs,
    lanes=st.integers(1, 4),
    link=st.floats(1, 6),
    host=st.floats(0, 1),
    slowed=st.booleans(),
)
@settings(max_examples=150)
def test_no_simulated_time_is_shorter_than_the_link_allows(load, cost, lanes, link, host, slowed):
    messages = tuple(Message(i, i, f"network{i % lanes}") for i in range(len(load.layers)))
    plan = ssgd.plan("lanes", load, messages, 4)
    network = Network({"all_reduce": Contended(cost, link, host * cost.a)})
    factors = Interference(points=(InterferencePoint(bytes=1, computation=1.5, communication=2),)) if slowed else None
    iteration = simulate(plan, load, network, interference=factors).iteration_seconds()
    wire = load.ready_seconds()[0] + cost.b * load.bytes / link
    computed = load.forward_seconds + load.backward_seconds
    bound = max(computed, wire) + load.update_seconds
    assert bound == pytest.approx(model_bound_seconds(plan, load, network), rel=1e-9)
    assert iteration >= bound * (1 - 1e-9)
    # a lane has one message at a time: no capacity makes up for that
    per_lane = max(sum(cost.seconds(size) for size in load.sizes()[lane::lanes]) for lane in range(lanes))
    assert iteration >= (load.ready_seconds()[0] + per_lane) * (1 - 1e-9)


def test_the_bound_of_a_link_with_room_is_reached():
    """Two lanes that keep a link busy which carries two."""
    load = workload([400, 400], [1.0, 0.0])
    network = Network({"all_reduce": Contended(Linear(0.0, 1.0), 2.0)})
    plan = ssgd.plan("two", load, (Message(0, 0, "network0"), Message(1, 1, "network1")), 4)
    iteration = simulate(plan, load, network).iteration_seconds()
    assert iteration == same(model_bound_seconds(plan, load, network)) == same(401)


def test_native_messages_on_links_share_them_alike():
    """A link of 4 B/s, of which a message alone gets 4/X: alone it takes its time, two take what the link allows."""
    switch = parse("switch:4")
    links = {"topology": switch, "speeds": Speeds(alpha=0.0, bandwidth=4.0)}
    for link, rate in ((1.0, 1 / 2), (1 / 0.6, 5 / 6), (3.0, 1.0)):
        cost = Contended(Linear(3, 0.25), link)
        assert at_once([80], [0], cost, **links) == same([23])
        assert at_once([80, 80], [0, 0], cost, **links) == same([3 + 20 / rate] * 2)


def test_transfers_that_are_spelled_out_have_the_whole_link():
    load = workload([80, 80], [1.0, 1.0])
    messages = (Message(0, 0, "network0"), Message(1, 1, "network1"))
    plan = ssgd.plan("rings", load, messages, 4, algorithm="ring", shape=(4,))
    links = {"topology": parse("switch:4"), "speeds": Speeds(alpha=0.5, bandwidth=4.0)}
    known, unknown = (
        simulate(plan, load, Network({"all_reduce": cost}), turns=2, **links)
        for cost in (Contended(Linear(1, 1), 2.0), Linear(1, 1))
    )
    assert known.spans == unknown.spans
    assert len(lowered(plan).roles[0].flat) > len(plan.roles[0].flat)
    assert known.iteration_seconds() >= links_bound_seconds(plan, load, **links)


def test_what_no_link_is_is_refused():
    for value in (0.5, float("nan"), float("inf")):
        with pytest.raises(InputError, match=r"capacity .* at least 1"):
            Contended(Linear(1, 1), value)
    with pytest.raises(InputError, match="host seconds -1"):
        Contended(Linear(1, 1), 1.0, -1.0)
    assert (capacity(Linear(1, 1)), host_seconds(Linear(1, 1))) == (1.0, 0.0)

"""Schedules with simultaneous messages against the simulator, against every plan there is, and against the bound."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsync import schedules
from gradsync.check import check
from gradsync.costs import Linear, Network
from gradsync.costs.contention import Contended
from gradsync.costs.fitted import fit
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.schedules import Message, _every, _plans, _refined, grouped, kway, searched, striped
from gradsync.schedules._plans import BETTER, Instance, whole
from gradsync.schedules._timed import Link, Span, Stages, end_seconds, message_bytes, spans
from gradsync.schedules.searched import lower_bound
from gradsync.updates import ssgd
from tiny_workloads import costs, workload, workloads

BEYOND = ("kway", "striped", "searched")
CAPACITIES = (1.0, 1.25, 5 / 3, 2.0, 3.0)
contended = st.builds(Contended, costs, st.sampled_from(CAPACITIES), st.sampled_from((0.0, 1e-3, 0.1)))


def drawn(rng, layers):
    """Dozens of float32 elements, which are split evenly, and whole seconds."""
    sizes, seconds = 48 * rng.integers(1, 20, layers), rng.integers(0, 12, layers)
    return workload(sizes.tolist(), seconds.astype(float).tolist(), forward=float(rng.integers(0, 5)))


def drawn_cost(rng):
    line = Linear(float(rng.integers(0, 15)), float(rng.integers(1, 4)) / 16)
    return Contended(line, float(rng.choice(CAPACITIES)), float(rng.choice([0.0, 0.0, 1.0, 3.0])))


def simulated(load, cost, messages) -> list[Span]:
    plan = ssgd.plan("any", load, tuple(messages), 2)
    check(plan)
    trace = simulate(plan, load, Network({"all_reduce": cost}), turns=1)
    spans = {span.operation: Span(span.start, span.end) for span in trace.spans}
    return [spans[f"message{number}"] for number in range(len(messages))]


def test_messages_end_when_the_simulator_says():
    rng = np.random.default_rng(1)
    for _ in range(400):
        layers, lanes = int(rng.integers(1, 12)), int(rng.integers(1, 5))
        load, cost = drawn(rng, layers), drawn_cost(rng)
        messages = []
        for message in grouped([*(i for i in range(layers - 1) if rng.random() < 0.6), layers - 1]):
            most = sum(layer.bytes for layer in load.layers[message.first : message.last + 1]) // 4
            pieces = min(int(rng.integers(1, 4)), most)
            for index in range(pieces):
                after = tuple(other for other in range(len(messages)) if rng.random() < 0.1)
                lane = f"network{rng.integers(lanes)}"
                messages.append(message._replace(lane=lane, after=after, part=(index, pieces)))
        np.testing.assert_allclose(spans(load, cost, messages), simulated(load, cost, messages), rtol=1e-12, atol=1e-9)


def test_two_messages_share_a_link_by_hand():
    load = workload([8, 12], [1.0, 2.0])
    both = Message(0, 0, "a"), Message(1, 1, "b")
    # T(m) = 1 + m; ready 1, 3. On a link for 1.6: alone from 2 to 4, 6 left; then each at 0.8: the first ends at
    # 4 + 6 / 0.8 = 11.5, the second has 6 left, alone again: 17.5
    np.testing.assert_allclose(spans(load, Contended(Linear(1.0, 1.0), 1.6), both), [(1, 11.5), (3, 17.5)])
    # on a link for 2 neither knows of the other
    np.testing.assert_allclose(spans(load, Contended(Linear(1.0, 1.0), 2.0), both), [(1, 10), (3, 16)])
    # nothing known of several: 1. From 4 on each at a half: 16, and 6 left: 22
    np.testing.assert_allclose(spans(load, Linear(1.0, 1.0), both), [(1, 16), (3, 22)])
    # where the second waits for the first: 10, then 1 + 12
    waiting = both[0], both[1]._replace(after=(0,))
    np.testing.assert_allclose(spans(load, Contended(Linear(1.0, 1.0), 2.0), waiting), [(1, 10), (10, 23)])


@given(load=workloads(), cost=contended, lanes=st.integers(1, 4))
@settings(max_examples=60)
def test_plans_are_what_was_timed(load, cost, lanes):
    """Each message leaves on a lane that is free, in order, as the search took it to."""
    for name in BEYOND:
        messages = schedules.messages(name, load, cost, {"lanes": lanes})
        assert len({message.lane for message in messages}) <= lanes
        times = spans(load, cost, messages)
        np.testing.assert_allclose(times, simulated(load, cost, messages), rtol=1e-9)
        assert max(time.end for time in times) >= lower_bound(load, cost, lanes) * (1 - 1e-9)
        assert message_bytes(load, messages).sum() == load.bytes


@given(load=workloads(), cost=contended, lanes=st.integers(1, 4))
@settings(max_examples=60)
def test_more_freedom_is_never_worse(load, cost, lanes):
    names = ("optimal", *BEYOND)
    options = [{}, *({"lanes": lanes} for _ in BEYOND)]
    ends = {
        name: end_seconds(load, cost, schedules.messages(name, load, cost, chosen))
        for name, chosen in zip(names, options, strict=True)
    }
    assert ends["kway"] <= ends["optimal"] * (1 + 1e-12)
    assert ends["searched"] <= min(ends.values()) * (1 + 1e-4)  # near enough to the bound, it stops
    if lanes == 1:
        assert ends["searched"] == pytest.approx(ends["optimal"], rel=1e-12)
        assert ends["striped"] == pytest.approx(ends["optimal"], rel=1e-12)


def every_plan(load, lanes):
    """All groupings, pieces and lanes of them: lists of messages."""
    layers = len(load.layers)
    elements = [layer.bytes // 4 for layer in load.layers]
    for inside in product((False, True), repeat=layers - 1):
        groups = grouped([*(i for i, cut in enumerate(inside) if cut), layers - 1])
        most = [min(lanes, sum(elements[group.first : group.last + 1])) for group in groups]
        for pieces in product(*(range(1, k + 1) for k in most)):
            parts = [group._replace(part=(i, k)) for group, k in zip(groups, pieces, strict=True) for i in range(k)]
            yield from (
                [part._replace(lane=f"network{lane}") for part, lane in zip(parts, (0, *chosen), strict=True)]
                for chosen in product(range(lanes), repeat=len(parts) - 1)
            )


def test_searched_is_the_best_of_all_plans_of_few_layers():
    rng = np.random.default_rng(2)
    split = waiting_helps = 0
    for number in range(60):
        lanes = 3 if number % 6 == 0 else 2
        load, cost = drawn(rng, int(rng.integers(1, 3 if lanes == 3 else 5))), drawn_cost(rng)
        messages = searched.schedule(load, cost, lanes=lanes)
        end = end_seconds(load, cost, messages)
        best = min(end_seconds(load, cost, plan) for plan in every_plan(load, lanes))
        assert best >= lower_bound(load, cost, lanes) * (1 - 1e-12)
        assert end == pytest.approx(best, rel=1e-12)
        split += any(message.part != (0, 1) for message in messages)
        # where a message waits for a lane while another is free
        in_order = first_free(load, cost, lanes)
        assert best <= in_order * (1 + 1e-12)
        assert in_order <= best * 1.02
        waiting_helps += best < in_order * (1 - 1e-9)
    assert split > 10
    assert waiting_helps < 6


def first_free(load, cost, lanes):
    """The best of the plans whose messages leave in order on the lane that is free first, each tried."""
    instance = Instance(load, cost, lanes)
    layers = len(load.layers)
    shortest = np.inf
    for inside in product((False, True), repeat=layers - 1):
        lasts = [*(i for i, cut in enumerate(inside) if cut), layers - 1]
        first = [0, *(last + 1 for last in lasts)]
        most = [instance.most_pieces(first[i], last) for i, last in enumerate(lasts)]
        for pieces in product(*(range(1, k + 1) for k in most)):
            shortest = min(shortest, instance.seconds(tuple(zip(lasts, pieces, strict=True))))
    return shortest


def test_branch_and_bound_finds_what_trying_all_finds():
    rng = np.random.default_rng(3)
    better = 0
    for _ in range(40):
        load, cost = drawn(rng, int(rng.integers(4, 7))), drawn_cost(rng)
        instance = Instance(load, cost, 2)
        plan = searched.exhaustive(instance, ((len(load.layers) - 1, 1),))
        best = first_free(load, cost, 2)
        assert instance.seconds(plan) == pytest.approx(best, rel=1e-12)
        assert end_seconds(load, cost, instance.messages(plan)) == pytest.approx(best, rel=1e-12)
        better += best < end_seconds(load, cost, kway.schedule(load, cost)) * (1 - 1e-9)
    assert better > 0  # splitting helps somewhere


def test_the_bound_of_one_lane_is_the_optimum():
    rng = np.random.default_rng(4)
    for _ in range(300):
        load, cost = drawn(rng, int(rng.integers(1, 12))), drawn_cost(rng)
        best = end_seconds(load, cost, schedules.messages("optimal", load, cost, {}))
        assert lower_bound(load, cost, 1) == pytest.approx(best, rel=1e-12)


def test_the_bound_holds_on_costs_that_are_no_line():
    rng = np.random.default_rng(5)
    sizes = np.arange(1, 401, 3)
    for _ in range(15):
        jump = int(rng.integers(20, 120))
        cost = Contended(
            fit(sizes, np.where(sizes < jump, 2 + 0.5 * sizes, 9 + 0.2 * sizes)), float(rng.choice(CAPACITIES))
        )
        load = drawn(rng, int(rng.integers(1, 5)))
        best = min(end_seconds(load, cost, messages) for messages in every_plan(load, 2))
        assert best >= lower_bound(load, cost, 2) * (1 - 1e-12)
        end = end_seconds(load, cost, schedules.messages("searched", load, cost, {}))
        assert best * (1 - 1e-12) <= end <= best * 1.01


def deep(layers=300, seed=6):
    """Sizes as of convolutional networks: many small ones; transfer about as long as backward."""
    rng = np.random.default_rng(seed)
    return workload((4 * np.ceil(rng.lognormal(9, 2, layers)).astype(int)).tolist(), [1e-3] * layers, forward=0.1)


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("share", [1.0, 0.75, 0.6])
def test_the_gap_of_deep_networks_is_small(share, lanes):
    load = deep()
    cost = Contended(Linear(1e-3, 0.4 / load.bytes), lanes / 2 / share)
    bound = lower_bound(load, cost, lanes)
    ends = {name: end_seconds(load, cost, schedules.messages(name, load, cost, {"lanes": lanes})) for name in BEYOND}
    one_lane = end_seconds(load, cost, schedules.messages("optimal", load, cost, {}))
    assert bound <= ends["searched"] * (1 + 1e-12)
    assert ends["searched"] <= bound * 1.03
    assert ends["kway"] <= bound * 1.05
    assert ends["striped"] <= bound * 1.10
    if share < 1.0 or lanes > 2:
        assert ends["searched"] < 0.9 * one_lane


def test_more_effort_is_not_worse():
    load = deep(120, seed=7)
    cost = Contended(Linear(4e-3, 0.4 / load.bytes), 5 / 3)
    seconds = [
        end_seconds(load, cost, schedules.messages("searched", load, cost, {"effort": effort})) for effort in (1, 8)
    ]
    assert seconds[1] <= seconds[0]


def test_plans_are_the_same_each_time():
    load = deep(80, seed=8)
    cost = Contended(Linear(1e-3, 0.4 / load.bytes), 5 / 3)
    for name in BEYOND:
        assert schedules.messages(name, load, cost, {}) == schedules.messages(name, load, cost, {})


def test_striped_splits_each_message_over_the_lanes():
    load, cost = workload([8, 4, 40], [1.0, 9.0, 9.0]), Contended(Linear(1.0, 1.0), 2.0)
    # each by itself: 1 + 8 / 2 = 5 and 1 + 1 = 3 are over before the next is ready; 4 bytes are one element: one piece
    assert striped.schedule(load, cost) == (
        Message(0, 0, "network0", part=(0, 2)),
        Message(0, 0, "network1", part=(1, 2)),
        Message(1, 1, "network0"),
        Message(2, 2, "network0", part=(0, 2)),
        Message(2, 2, "network1", part=(1, 2)),
    )
    # on a link that a message alone fills nothing is gained: 1 + 8
    ends = {c: end_seconds(load, Contended(Linear(1.0, 1.0), c), striped.schedule(load, cost)) for c in (1.0, 2.0)}
    assert ends == {1.0: 19 + 41, 2.0: 19 + 21}
    assert {message.lane for message in striped.schedule(load, cost, lanes=1)} == {schedules.DEFAULT_LANE}


def test_kway_fills_the_link_that_one_message_does_not():
    """Two messages of 20 at once, each at full speed, instead of one of 40."""
    load, cost = workload([20, 20], [1.0, 0.0]), Contended(Linear(2.0, 1.0), 2.0)
    assert schedules.messages("kway", load, cost, {}) == (Message(0, 0, "network0"), Message(1, 1, "network1"))
    assert schedules.messages("kway", load, cost, {"lanes": 1}) == (Message(0, 1),)
    assert schedules.messages("kway", load, Linear(50.0, 1.0), {}) == (Message(0, 1),)


@pytest.mark.parametrize("name", BEYOND)
def test_lanes_below_one_are_refused(name):
    for lanes in (0, -2):
        with pytest.raises(InputError, match=f"{name}: lanes={lanes}: at least 1"):
            schedules.messages(name, workload([4, 4], [1.0, 1.0]), Linear(1, 1), {"lanes": lanes})


def test_other_options_are_refused():
    load = workload([4, 4], [1.0, 1.0])
    with pytest.raises(InputError, match="searched: effort=0: at least 1"):
        schedules.messages("searched", load, Linear(1, 1), {"effort": 0})
    with pytest.raises(InputError, match="schedule 'kway' has no option 'effort'; it has: lanes=2"):
        schedules.messages("kway", load, Linear(1, 1), {"effort": 2})
    with pytest.raises(InputError, match=r"option 'lanes': 2\.0 is not a int"):
        schedules.messages("striped", load, Linear(1, 1), {"lanes": 2.0})


def test_nothing_that_costs_nothing_is_refused():
    """Schemes are tried on a network that takes no time."""
    load = workload([4, 4], [0.0, 0.0])
    for name in (*BEYOND, "ascwfbp"):
        for options in ({}, *([] if name == "ascwfbp" else [{"lanes": 4}])):
            messages = schedules.messages(name, load, Linear(0.0, 0.0), options)
            assert sorted({(m.first, m.last) for m in messages}) in ([(0, 1)], [(0, 0), (1, 1)])


def test_plans_of_a_few_layers_are_counted():
    """Of one layer on 2 lanes: 2 choices in one piece and 4 in two, the names of lanes counted once: 3.

    A second layer is merged or has the 6 as well: 3 x 7. On one lane there are the groupings alone.
    """
    assert [_every.number(layers, 2) for layers in (1, 2, 3)] == [3, 21, 147]
    assert [_every.number(layers, 1) for layers in (1, 2, 5)] == [1, 2, 16]
    assert _every.number(1, 3) == (3 + 9 + 27) // 3


def test_what_messages_in_flight_still_need_is_counted_in_every_stage():
    """One on the host for 1 s, one that starts for 2 s, one that transfers from the start."""
    link = Link([1.0, 1.0, 0.5, 0.25])
    link.add(7, Stages(1.0, 5.0, 8.0))
    link.add(8, Stages(0.0, 2.0, 4.0))
    link.add(9, Stages(0.0, 0.0, 6.0))
    assert link.backlog() == 18.0
    assert [link.next() for _ in range(3)] == [-1, -1, -1]  # 9 flows at 0, 7 leaves the host at 1, 8 flows at 2
    assert link.now == 2.0
    assert link.backlog() == 16.0  # 9 has had 2 s
    assert link.next() == -1  # 7 flows at 6: until then the two had half each
    assert (link.now, link.backlog()) == (6.0, 12.0)


THREE = workload([8, 8, 8], [1.0, 1.0, 1.0])  # 2 elements each


def test_every_plan_of_two_layers_is_tried_once():
    """Merged, only two pieces on two lanes. Apart, (1, 1) pieces have 1 choice, (1, 2) and (2, 1) 3, (2, 2) 7.

    The first piece is on the first lane; what is on one lane alone is not looked at.
    """
    plans = list(_every.every(Instance(workload([8, 8], [1.0, 1.0]), Linear(1.0, 1.0), 2)))
    assert len(plans) == len(set(plans)) == 1 + (1 + 3 + 3 + 7)
    assert {tuple(dict.fromkeys((message.first, message.last) for message in plan)) for plan in plans} == {
        ((0, 1),),
        ((0, 0), (1, 1)),
    }


def test_what_local_search_changes():
    """Of layers 1 + 2 with 2 lanes: pieces, the border, a merge, a cut in the middle."""
    instance = Instance(THREE, Linear(1.0, 1.0), 2)
    plan = ((0, 1), (2, 1))
    assert set(_refined._changes(instance, plan, 0)) == {
        (0, ((0, 2), (2, 1))),
        (0, ((1, 1), (2, 1))),
        (0, ((2, 1),)),
        (0, ((2, 2),)),
    }
    assert set(_refined._changes(instance, plan, 1)) == {(1, ((0, 1), (2, 2))), (1, ((0, 1), (1, 1), (2, 1)))}
    split = ((1, 2), (2, 2))
    assert (0, ((0, 2), (2, 2))) in set(_refined._changes(instance, split, 0))  # pieces are kept where they fit


@pytest.mark.parametrize("lanes", [1, 2])
def test_local_search_stops_where_no_change_helps(lanes):
    rng = np.random.default_rng(11)
    better = 0
    for _ in range(30):
        instance = Instance(drawn(rng, int(rng.integers(2, 7))), drawn_cost(rng), lanes)
        start = whole(range(instance.layers))
        plan = _refined.refined(instance, start, 100_000)
        seconds = instance.seconds(plan)
        better += seconds < instance.seconds(start)
        if seconds > instance.enough:
            for number in range(len(plan)):
                for _, changed in _refined._changes(instance, plan, number):
                    assert instance.seconds(changed) >= seconds * BETTER
    assert better > 10


def test_a_plan_is_near_enough_to_the_bound_at_one_part_in_ten_thousand():
    rng = np.random.default_rng(12)
    for lanes in (1, 2, 3):
        instance = Instance(drawn(rng, 5), drawn_cost(rng), lanes)
        least = lower_bound(instance.workload, instance.cost, lanes, shares=(0.0, 1.0))
        assert instance.enough == pytest.approx(least * 1.0001, rel=1e-12)
        unsplit = lower_bound(instance.workload, instance.cost, lanes, pieces=1, shares=(0.0, 1.0))
        assert instance.of_whole_gradients().enough == pytest.approx(unsplit * 1.0001, rel=1e-12)


def test_a_message_is_cut_at_the_layers_nearest_to_equal_bytes():
    """Layers of 2, 6, 2 and 6 elements, two lanes: the middle of all is 8 = 2 + 6; of the last two, none but 2."""
    instance = Instance(workload([8, 24, 8, 24], [1.0] * 4), Linear(1.0, 1.0), 2)
    assert instance.cut(((3, 1),), [0]) == ((1, 1), (3, 1))
    assert instance.cut(((1, 1), (3, 1)), [1]) == ((1, 1), (2, 1), (3, 1))
    assert instance.cut(((0, 1), (3, 1)), [0]) == ((0, 1), (3, 1))  # a layer alone is not cut


def test_candidates_of_split_messages_have_the_last_ones_split_alone_too():
    instance = Instance(THREE, Contended(Linear(4.0, 0.01), 2.0), 2)
    plans = list(searched.split_candidates(instance))
    for lasts in {tuple(last for last, _ in plan) for plan in plans}:
        splits = {tuple(pieces for _, pieces in plan) for plan in plans if tuple(last for last, _ in plan) == lasts}
        wanted = {(1,) * (len(lasts) - k) + (2,) * k for k in (1, 2, len(lasts)) if k <= len(lasts)}
        assert splits == wanted


def test_groupings_are_those_of_several_shares_of_start_up():
    """Start-up of 10 s, gradients 1 s apart, 1 s of transfer each: free of start-up none waits, with all of it all do.

    Three times the start-up is never worth a second message.
    """
    instance = Instance(workload([8] * 4, [1.0] * 4), Linear(10.0, 0.125), 1)
    groupings = dict(zip(_plans.SHARES_OF_STARTUP, instance.groupings(), strict=True))
    assert groupings[0.0] == (0, 1, 2, 3)
    assert groupings[3.0] == groupings[1.0] == (3,)
    assert groupings[0.1] != groupings[1.0]  # 1 s of start-up

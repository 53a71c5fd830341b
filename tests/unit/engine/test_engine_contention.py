"""Rates of work that shares its sides are max-min fair: by hand, by their definition, and against a slow reference."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from functools import partial
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradsync.costs import Linear, Network
from gradsync.costs.contention import Contended
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine import contention
from gradsync.engine.contention import ContentionLoop, Flow, Side, Use, fill
from gradsync.engine.simulate import simulate
from gradsync.plan import Buffer, Collective, Plan, Recv, Ref, Role, Send, Tensor
from gradsync.plan.workload import Workload
from gradsync.schedules import Message
from gradsync.topologies import Speeds, parse
from gradsync.updates import ssgd
from tiny_workloads import workload

EXACT = 1e-9


def same(numbers):
    return pytest.approx(numbers, rel=1e-12)


# (capacities of the sides, flows: (how many pieces, limit or None, {side: part}))
Case = tuple[list[Fraction], list[tuple[int, Fraction | None, dict[int, Fraction]]]]

whole = st.integers(1, 12).map(Fraction)
parts = st.sampled_from([Fraction(1), Fraction(1), Fraction(1, 2), Fraction(1, 3), Fraction(3, 4)])


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Few sides, so that flows meet; with limits below, at and above what the sides give."""
    capacities = draw(st.lists(whole, min_size=1, max_size=6))
    sides = st.integers(0, len(capacities) - 1)
    limit = st.one_of(st.none(), st.fractions(Fraction(1, 4), 6, max_denominator=4))
    flow = st.tuples(st.integers(1, 4), limit, st.dictionaries(sides, parts, min_size=1, max_size=4))
    return capacities, draw(st.lists(flow, min_size=1, max_size=10))


def reference(case: Case) -> list[Fraction]:
    """All rates rise together until a side is full or a limit is met, again and again, in fractions."""
    capacities, flows = case
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        rooms = []
        for side, capacity in enumerate(capacities):
            used = sum(n * uses.get(side, 0) * rates[f] for f, (n, _, uses) in enumerate(flows))
            growing = sum(flows[f][0] * flows[f][2].get(side, 0) for f in rising)
            if growing:
                rooms.append((capacity - used) / growing)
        rooms += [flows[f][1] - rates[f] for f in rising if flows[f][1] is not None]
        for f in rising:
            rates[f] += min(rooms)
        for side, capacity in enumerate(capacities):
            if sum(n * uses.get(side, 0) * rates[f] for f, (n, _, uses) in enumerate(flows)) == capacity:
                rising = {f for f in rising if side not in flows[f][2]}
        rising = {f for f in rising if rates[f] != flows[f][1]}
    return rates


def filled(case: Case) -> list[float]:
    capacities, flows = case
    sides = [Side(float(capacity)) for capacity in capacities]
    made = []
    for pieces, limit, uses in flows:
        flow = Flow([Use(sides[side], float(part)) for side, part in uses.items()], inf if limit is None else limit)
        flow.ends = [(1.0, i, lambda now: None) for i in range(pieces)]
        for side, _ in flow.sides:
            side.flows[flow] = None
        made.append(flow)
    fill(made)
    return [flow.share for flow in made]


@settings(max_examples=400, deadline=None)
@given(case=cases())
def test_shares_are_those_of_the_slow_reference(case):
    assert filled(case) == pytest.approx([float(rate) for rate in reference(case)], rel=EXACT)


@settings(max_examples=400, deadline=None)
@given(case=cases())
def test_no_side_carries_too_much_and_every_flow_has_a_reason_not_to_be_faster(case):
    capacities, flows = case
    rates = filled(case)
    carried = [
        sum(n * float(uses.get(side, 0)) * rate for (n, _, uses), rate in zip(flows, rates, strict=True))
        for side in range(len(capacities))
    ]
    for load, capacity in zip(carried, capacities, strict=True):
        assert load <= float(capacity) * (1 + EXACT)
    for (_, limit, uses), rate in zip(flows, rates, strict=True):
        assert rate > 0
        assert limit is None or rate <= float(limit) * (1 + EXACT)
        at_its_limit = limit is not None and rate == pytest.approx(float(limit), rel=EXACT)
        # a side that is full, on which nothing is faster
        held = any(
            carried[side] == pytest.approx(float(capacities[side]), rel=EXACT)
            and all(rates[f] <= rate * (1 + EXACT) for f, other in enumerate(flows) if side in other[2])
            for side in uses
        )
        assert at_its_limit or held


def test_what_one_can_not_use_the_others_get():
    """Three flows on a link of 9: one is held at 1 by its limit, one at 2 by another link; equal shares would be 3."""
    shared, slow = Side(9.0), Side(2.0)
    flows = [Flow([Use(shared)], 1.0), Flow([Use(shared), Use(slow)]), Flow([Use(shared)])]
    for flow in flows:
        flow.ends = [(1.0, 0, lambda now: None)]
        for side, _ in flow.sides:
            side.flows[flow] = None
    fill(flows)
    assert [flow.share for flow in flows] == [1.0, 2.0, 6.0]


def shares_of(*flows: Flow) -> list[float]:
    """Of flows of one piece each, which are all that take any of their sides."""
    for flow in flows:
        flow.ends = [(1.0, 0, lambda now: None)]
        for side, _ in flow.sides:
            side.flows[flow] = None
    fill(flows)
    return [flow.share for flow in flows]


def test_a_link_is_full_however_little_a_limited_flow_leaves():
    """9 on a link; a third would be 3, one is held at 2.9999: each other one gets half of 6.0001."""
    link = Side(9.0)
    assert shares_of(Flow([Use(link)], 2.9999), Flow([Use(link)]), Flow([Use(link)])) == same(
        [2.9999, 3.00005, 3.00005]
    )


def test_flows_that_stop_together_all_leave_what_they_have_not_used():
    """Two flows stop at 1 on their own full links of 1; of the 10 that they share the third gets the other 8."""
    link = Side(10.0)
    held = [Flow([Use(link), Use(Side(1.0))]) for _ in range(2)]
    assert shares_of(*held, Flow([Use(link)])) == same([1.0, 1.0, 8.0])


# Work that comes and goes


@st.composite
def histories(draw: st.DrawFn) -> tuple[Case, list[tuple[int, int, int]]]:
    """Flows, and pieces of work: (start, how much, which flow)."""
    capacities, flows = draw(cases())
    flows = [(1, limit, uses) for _, limit, uses in flows]
    work = st.tuples(st.integers(0, 12), st.integers(1, 20), st.integers(0, len(flows) - 1))
    return (capacities, flows), draw(st.lists(work, min_size=1, max_size=12))


def ends_by_reference(case: Case, works: list[tuple[int, int, int]]) -> list[float]:
    """Whenever anything comes or goes, all rates anew."""
    capacities, flows = case
    now, left, ends = Fraction(0), {}, {}
    coming = sorted((Fraction(start), i) for i, (start, _, _) in enumerate(works))
    while left or coming:
        while coming and coming[0][0] == now:
            i = coming.pop(0)[1]
            left[i] = Fraction(works[i][1])
        under_way = list(left)
        rates = reference((capacities, [flows[works[i][2]] for i in under_way]))
        next_start = coming[0][0] - now if coming else None
        steps = [left[i] / rate for i, rate in zip(under_way, rates, strict=True)]
        step = min([*steps, *([] if next_start is None else [next_start])])
        now += step
        for i, rate in zip(under_way, rates, strict=True):
            left[i] -= step * rate
            if left[i] == 0:
                del left[i]
                ends[i] = float(now)
    return [ends[i] for i in range(len(works))]


def ends_by_sharing(case: Case, works: list[tuple[int, int, int]]) -> list[float]:
    capacities, flows = case
    sides = [Side(float(capacity)) for capacity in capacities]
    uses = [[Use(sides[side], float(part)) for side, part in used.items()] for _, _, used in flows]
    loop, ends = ContentionLoop(), {}
    for i, (start, amount, flow) in enumerate(works):
        limit = flows[flow][1]
        begin = partial(loop._begin, float(amount), uses[flow], inf if limit is None else float(limit))
        loop._at(float(start), lambda now, begin=begin, i=i: begin(now, partial(ends.__setitem__, i)))
    loop._run()
    return [ends[i] for i in range(len(works))]


@settings(max_examples=300, deadline=None)
@given(history=histories())
def test_work_ends_when_a_reference_that_forgets_nothing_says(history):
    """And so that no work is lost or made: the reference transfers exactly what there is."""
    assert ends_by_sharing(*history) == pytest.approx(ends_by_reference(*history), rel=1e-7)


def test_only_what_is_connected_is_shared_anew(monkeypatch):
    looked: list[int] = []
    monkeypatch.setattr(contention, "fill", lambda flows: looked.append(len(flows)) or fill(flows))
    one, other, bridge = Side(), Side(), Side()
    apart, loop, ends = [[Use(Side())] for _ in range(50)], ContentionLoop(), []
    for sides in ([Use(one), Use(bridge)], [Use(other), Use(bridge)]):
        loop._begin(2.0, sides, inf, 0.0, ends.append)
    for sides in apart:
        loop._begin(1.0, sides, inf, 0.0, lambda now: None)
    looked_at = [Use(apart[0][0].side)]
    loop._at(0.25, lambda now: loop._begin(1.0, looked_at, inf, now, ends.append))
    loop._run()
    assert looked[0] == 52
    assert looked[1] == 2  # what begins, and the one that it meets
    # at 1 s the 49 others end; that which was met 0.75 s later, then what it met, then the two of the bridge
    assert sorted(looked[2:], reverse=True)[0] <= 2
    assert ends == pytest.approx([2.0, 4.0, 4.0])


def test_many_equal_pieces_are_one_flow(monkeypatch):
    looked: list[int] = []
    monkeypatch.setattr(contention, "fill", lambda flows: looked.append(len(flows)) or fill(flows))
    sides, loop, ends = [Use(Side()), Use(Side())], ContentionLoop(), []
    for work in range(1, 101):
        loop._begin(float(work), sides, inf, 0.0, ends.append)
    loop._run()
    assert set(looked) <= {0, 1}
    # processor sharing: the k-th to end has shared with the others until then
    assert ends[0] == pytest.approx(100.0)
    assert ends[-1] == pytest.approx(sum(range(1, 101)))


def test_pieces_that_end_together_leave_their_link_at_once(monkeypatch):
    """Two of 1 s and one of 2 s share a link: at 3 s both short ones are gone; the last has it to itself until 4 s."""
    pieces: list[list[int]] = []

    def counted(flows):
        pieces.append([len(flow.ends) for flow in flows])
        fill(flows)

    monkeypatch.setattr(contention, "fill", counted)
    sides, loop, ends = [Use(Side())], ContentionLoop(), []
    for work in (1.0, 1.0, 2.0):
        loop._begin(work, sides, inf, 0.0, ends.append)
    loop._run()
    assert ends == [3.0, 3.0, 4.0]
    assert pieces == [[3], [1], []]  # never two, as if one of the short ones were still there


def test_an_end_that_rounding_puts_into_the_past_is_now():
    """What has passed is a sum of products, which may exceed a piece's mark by the last digit."""
    flow, loop, ends = Flow([]), ContentionLoop(), []
    flow.ends = [(1.0, 1, ends.append)]
    flow.passed, flow.since = 1.0 + 1e-9, 5.0
    loop._pace(flow, 5.0)
    loop._run()
    assert ends == [5.0]


# In the simulator


def transfers(*sends: tuple[int, int, int]) -> tuple[Plan, Workload]:
    """A plan in which each (source, destination, elements) is a message of its own, all at once; 4 B an element."""
    ranks = 1 + max(max(source, to) for source, to, _ in sends)
    largest = max(elements for _, _, elements in sends)
    roles = []
    for rank in range(ranks):
        body: list = []
        for i, (source, to, elements) in enumerate(sends):
            ref = (Ref("values", 0, elements),)
            if source == rank:
                body.append(Send(name=f"send{i}", lane=f"out{i}", to=to, tag=i, reads=ref))
            if to == rank:
                body.append(Recv(name=f"recv{i}", lane=f"in{i}", source=source, tag=i, writes=ref))
        roles.append(Role(f"rank{rank}", (rank,), tuple(body)))
    tensors, buffers = (Tensor("layer1", 0, largest),), (Buffer("values", largest),)
    plan = Plan(name="transfers", ranks=ranks, tensors=tensors, buffers=buffers, roles=tuple(roles))
    return plan, workload([4 * largest], [0.0])


def test_a_flow_inside_a_node_gets_what_flows_between_nodes_leave():
    """Two nodes of two GPUs, 12 B/s inside and 2 B/s between. GPU 0 sends to GPU 1 and to both of the other node.

    Of GPU 0's way out the two that cross get 1 B/s each, all that the node's link has; the one inside gets the other
    10, where equal shares of its way out would be 4: 120 B take 12 s. Then the others still take 24 and 24 s.
    """
    plan, load = transfers((0, 1, 30), (0, 2, 6), (0, 3, 6))
    speeds = Speeds(0.0, {"inside": 12.0, "between": 2.0})
    trace = simulate(plan, load, Network({}), turns=1, topology=parse("dense_gpu:2,2"), speeds=speeds)
    ends = {span.operation: span.end for span in trace.spans if span.verb == "send"}
    assert ends == pytest.approx({"send0": 12.0, "send1": 24.0, "send2": 24.0})


def test_a_message_that_its_own_limit_holds_leaves_the_rest_to_transfers():
    """A native sum on links gets a quarter of each at most; transfers of another lane get three quarters, not half."""
    load = workload([80], [0.0])
    plan = ssgd.plan("beside", load, (Message(0, 0),), 2)
    ref = (Ref("gradient", 0, 20),)
    beside = (
        Send(name="send", lane="beside", to=1, reads=ref),
        Recv(name="recv", lane="beside", source=1, writes=ref),
    )
    bodies = [plan.roles[0].body + beside]
    bodies.append(plan.roles[0].body + tuple(_swapped(op) for op in beside))
    roles = tuple(Role(f"rank{rank}", (rank,), body) for rank, body in enumerate(bodies))
    plan = Plan(name="beside", ranks=2, tensors=plan.tensors, buffers=plan.buffers, roles=roles)
    cost = Contended(Linear(0.0, 1.0), 4.0)
    links = {"topology": parse("switch:2"), "speeds": Speeds(0.0, 4.0)}
    trace = simulate(plan, load, Network({"all_reduce": cost}), turns=1, **links)
    ends = {span.operation: span.end for span in trace.of(0)}
    assert ends["send"] == pytest.approx(80 / 3.0)
    assert ends["message0"] == pytest.approx(80.0)  # alone or not: 80 s at a quarter of 4 B/s


def _swapped(op):
    if isinstance(op, Send):
        return Send(name=op.name, lane=op.lane, to=0, reads=op.reads)
    return Recv(name=op.name, lane=op.lane, source=0, writes=op.writes)


def test_a_server_gets_what_messages_to_a_busy_server_can_not_send():
    """Four messages to server 0 and one to server 1 at once, three ranks, 40 s alone: 20 s to push and 20 s to pull.

    The way into server 0 gives each of the four a quarter. Half of each message leaves rank 2, whose way out so has
    half left: with it the fifth pushes at full speed until 20 s; with a fifth of the way it would need until 50 s. Then
    it is pulled, half of it by rank 0, over the way in that the four still fill: each of the five gets 1/4.5. At 87.5 s
    the four, which had 15 s left to push, are through; the fifth pulls its other 5 s at full speed, the four theirs at
    a quarter.
    """
    load = workload([40] * 5, [0.0] * 5)
    messages = tuple(Message(i, i, f"lane{i}") for i in range(5))
    plan = ssgd.plan("servers", load, messages, 3, algorithm="ps_tensor")
    body = tuple(
        dataclasses.replace(op, root=int(op.name == "message4")) if isinstance(op, Collective) else op
        for op in plan.roles[0].body
    )
    plan = dataclasses.replace(plan, roles=(Role("worker", (0, 1, 2), body),))
    trace = simulate(plan, load, Network({"all_reduce": Linear(0.0, 1.0)}), turns=1)
    ends = {span.operation: span.end for span in trace.of(0) if span.verb == "collective"}
    assert ends == pytest.approx({**{f"message{i}": 167.5 for i in range(4)}, "message4": 92.5})


def test_a_message_that_computation_slows_keeps_its_share():
    """Slowed to half, it takes half of its half of the link; what it does not use there is not known to be free."""
    factors = Interference(points=(InterferencePoint(bytes=1, computation=1, communication=2),))
    load = workload([80, 80], [0.0, 100.0])
    plan = ssgd.plan("two", load, (Message(0, 0, "a"), Message(1, 1, "b")), 2)
    trace = simulate(plan, load, Network({"all_reduce": Linear(0.0, 1.0)}), turns=1, interference=factors)
    ends = {span.operation: span.end for span in trace.of(0)}
    assert ends["message0"] == pytest.approx(100 + 2 * 30)  # 50 of 80 by then
    assert ends["message1"] == pytest.approx(100 + 80 + 30)

"""Simulated iterations equal the papers' closed forms, and none is shorter than the link and the computation allow."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings

import tiny_plans as tiny
from gradsync import schedules
from gradsync.collectives import POSTCONDITION
from gradsync.costs import Linear, Network
from gradsync.costs.fitted import fit
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine.bounds import model_bound_seconds
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Buffer, Plan, Recv, Ref, Role, Send, Tensor
from gradsync.schedules import Message
from gradsync.updates import ssgd
from tiny_workloads import costs, workload, workloads

EXACT = 1e-12


def planned(name, load, cost, ranks=4):
    return ssgd.plan(name, load, schedules.messages(name, load, cost, {}), ranks)


def iteration(name, load, cost):
    return simulate(planned(name, load, cost), load, Network({"all_reduce": cost})).iteration_seconds()


def comm_ends(load, cost):
    """Eq. 7: end of the message of each layer, backward order."""
    end, ends = 0.0, []
    for ready, size in zip(load.ready_seconds(), load.sizes(), strict=True):
        end = max(end, ready) + cost.seconds(size)
        ends.append(end)
    return ends


def same(seconds):
    return pytest.approx(seconds, rel=EXACT)


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_naive_is_eq_3(load, cost):
    closed = load.forward_seconds + load.backward_seconds + cost.seconds(load.sizes()).sum() + load.update_seconds
    assert iteration("naive", load, cost) == same(closed)


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_wfbp_is_eq_8(load, cost):
    assert iteration("wfbp", load, cost) == same(comm_ends(load, cost)[-1] + load.update_seconds)


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_single_is_one_message_after_backward(load, cost):
    closed = load.forward_seconds + load.backward_seconds + cost.a + cost.b * load.bytes + load.update_seconds
    assert iteration("single", load, cost) == same(closed)


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_optimal_is_its_dynamic_program(load, cost):
    """f[l] = min over j of max(f[j], ready[l]) + a + b (m[l] + .. + m[j-1]); answer f[1]."""
    ready, sizes = load.ready_seconds(), load.sizes()
    f = [0.0]
    for j in range(1, len(sizes) + 1):
        f.append(min(max(f[i], ready[j - 1]) + cost.a + cost.b * sizes[i:j].sum() for i in range(j)))
    assert iteration("optimal", load, cost) == same(f[-1] + load.update_seconds)


def backward_and_communication(load, cost):
    """t_b[l] and t_c[l] with the paper's indices: entry 0 unused, layer 1 next to the input."""
    tb = [0.0, *(layer.backward_seconds for layer in reversed(load.layers))]
    tc = [0.0, *cost.seconds(load.sizes())[::-1]]
    return tb, tc


def test_case_1_every_message_is_hidden_eq_11():
    load, cost = workload([8, 16, 24, 32], [3.0, 11.0, 19.0, 27.0], forward=5.0), Linear(2.0, 0.25)
    tb, tc = backward_and_communication(load, cost)
    assert all(tc[k] <= tb[k - 1] for k in range(2, 5))
    assert iteration("wfbp", load, cost) == same(load.forward_seconds + sum(tb) + tc[1])


def test_case_2_the_backlog_drains_before_layer_1_eq_12():
    load, cost = workload([8, 40, 8, 16], [3.0, 4.0, 6.0, 17.0], forward=5.0), Linear(2.0, 0.25)
    tb, tc = backward_and_communication(load, cost)
    (C,) = (k for k in range(2, 5) if tc[k] > tb[k - 1])  # noqa: N806  not hidden ..
    assert any(sum(tc[K : C + 1]) <= sum(tb[K - 1 : C]) for K in range(2, C))  # .. but it drains (MG-E15, MG-E16)
    assert iteration("wfbp", load, cost) == same(load.forward_seconds + sum(tb) + tc[1])


def test_case_3_the_backlog_never_drains_eq_13_as_corrected():
    load, cost = workload([8, 80, 40, 16], [3.0, 5.0, 4.0, 6.0], forward=5.0), Linear(2.0, 0.25)
    tb, tc = backward_and_communication(load, cost)
    C = next(k for k in range(4, 1, -1) if tc[k] > tb[k - 1])  # noqa: N806
    assert C == 3
    assert not any(sum(tc[K : C + 1]) <= sum(tb[K - 1 : C]) for K in range(2, C + 1))
    right = load.forward_seconds + sum(tb[C:]) + sum(tc[1 : C + 1])
    printed = load.forward_seconds + sum(tb[C - 2 : 4]) + sum(tc[1 : C + 1])
    assert iteration("wfbp", load, cost) == same(right)
    assert iteration("wfbp", load, cost) != pytest.approx(printed, rel=1e-3)  # MG-E17


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_no_schedule_is_faster_than_link_and_computation(load, cost):
    network = Network({"all_reduce": cost})
    lanes = tuple(Message(i, i, f"lane{i % 3}") for i in range(len(load.layers)))
    plan = ssgd.plan("three lanes", load, lanes, 4)
    bound = model_bound_seconds(plan, load, network)
    assert simulate(plan, load, network).iteration_seconds() >= bound * (1 - 1e-9)
    for name in schedules.names():
        assert iteration(name, load, cost) >= bound * (1 - 1e-9)
        assert model_bound_seconds(planned(name, load, cost), load, network) == same(bound)  # of all alike


def test_the_bound_holds_where_shorter_messages_are_faster():
    sizes = np.geomspace(1e3, 1e7, 40)
    cost = fit(sizes, np.where(sizes < 1e6, 1e-4 + 1e-9 * sizes, -0.9e-3 + 2e-9 * sizes))
    load = workload([10**6] * 9, [0.0] * 9)
    bound = model_bound_seconds(planned("wfbp", load, cost), load, Network({"all_reduce": cost}))
    assert bound <= iteration("wfbp", load, cost) < cost.seconds(9e6)


def test_the_bound_is_reached_where_a_link_is_all_there_is():
    """And a bound of twice the bytes would be broken: the bound is no empty one."""
    load, cost = workload([400, 400], [1.0, 0.0]), Linear(0.0, 1.0)
    network = Network({"all_reduce": cost})
    assert iteration("wfbp", load, cost) == same(model_bound_seconds(planned("wfbp", load, cost), load, network))
    doubled = workload([800, 800], [1.0, 0.0])
    assert iteration("wfbp", load, cost) < model_bound_seconds(planned("wfbp", doubled, cost), doubled, network)


SYMMETRIC = ["synchronous", "two_lanes", "repeated", "sparse", "dealt_ratios", "sharded"]


def on_axes(*axes: str) -> tuple[str, ...]:
    return tuple(f"{kind}@{axis}" for kind in ("all_reduce", "all_gather", "reduce_scatter") for axis in axes)


@pytest.mark.parametrize("name", [*SYMMETRIC, "summed_on_axes", "sharded_on_axes"])
def test_rank_0_alone_stands_for_all_ranks_of_a_symmetric_plan(name):
    plan = tiny.every_kind()[name]
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    backward = [float(i + 1) for i in range(len(sizes))]
    names = [tensor.name for tensor in plan.tensors]
    load = workload(sizes, backward, forward=2.0, forwards=backward, update=1.0, dtype="float64", names=names)
    kinds = ("all_reduce", "all_gather", "reduce_scatter", *on_axes("node", "local"))
    network = Network({kind: Linear(3.0, 0.125) for kind in kinds})
    short = simulate(plan, load, network, turns=4)
    whole = simulate(plan, {rank: load.model_copy() for rank in range(plan.ranks)}, network, turns=4)
    assert short.ranks == (0,)
    assert whole.ranks == tuple(range(plan.ranks))
    for rank in whole.ranks:
        alone = [span._replace(rank=rank) for span in short.spans]
        assert sorted(alone) == sorted(span for span in whole.spans if span.rank == rank)


def test_a_slow_rank_delays_all():
    load = workload([80, 40, 120], [3.0, 2.0, 4.0], forward=2.0, update=1.0)
    slow = load.scaled(forward_seconds=8.0, backward_seconds=36.0, update_seconds=4.0, note="a quarter of the speed")
    cost = Linear(2.0, 0.125)
    plan, network = planned("wfbp", load, cost), Network({"all_reduce": cost})
    trace = simulate(plan, {0: load, 1: load, 2: slow, 3: load}, network)
    alone = simulate(plan, slow, network).iteration_seconds()
    for rank in range(4):
        assert trace.iteration_seconds(rank) == same(alone)
    assert alone > simulate(plan, load, network).iteration_seconds() + 15
    assert trace.exposed_communication_seconds(0) > trace.exposed_communication_seconds(2)  # the quick ones wait


def test_messages_of_one_name_in_two_roles_have_their_own_sizes():
    def pair(rank, elements):
        ref = (Ref("values", 0, elements),)
        return (
            Role(f"from{rank}", (rank,), (Send(name="m", lane="network", to=rank + 1, reads=ref),)),
            Role(f"to{rank}", (rank + 1,), (Recv(name="m", lane="network", source=rank, writes=ref),)),
        )

    plan = Plan(
        name="two pairs",
        ranks=4,
        tensors=(Tensor("layer1", 0, 100),),
        buffers=(Buffer("values", 100),),
        roles=(*pair(0, 10), *pair(2, 100)),
    )
    trace = simulate(plan, workload([400], [1.0]), Network({"send": Linear(2.0, 0.5)}), turns=1)
    assert {span.rank: span.end for span in trace.spans if span.verb == "send"} == {0: 22.0, 2: 202.0}


@pytest.mark.parametrize(("name", "seconds"), [("synchronous", 6.0), ("dealt_ratios", 27.0), ("sharded", 2.0)])
def test_updates_of_parts_take_their_part_of_the_update(name, seconds):
    """Of the 6 s of a whole update; three ranks that each update a third need 2 s.

    LARS takes what its bytes do, 1/8 s each: it reads gradient and parameter of 3 layers of 3 elements, and writes one.
    """
    plan = tiny.every_kind()[name]
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    ones, names = [1.0] * len(sizes), [tensor.name for tensor in plan.tensors]
    load = workload(sizes, ones, forward=1.0, forwards=ones, update=6.0, dtype="float64", names=names)
    load = load.model_copy(update={"kernels": {**load.kernels, "lars": 0.125}})
    network = Network({kind: Linear(3.0, 0.125) for kind in ("all_reduce", "all_gather", "reduce_scatter")})
    spans = [span for span in simulate(plan, load, network, turns=2).of(0, 1) if span.operation.startswith("update")]
    assert sum(span.end - span.start for span in spans) == same(seconds)


def test_a_fitted_cost_is_split_at_its_last_slope():
    """One message takes T(m), whatever the pieces are."""
    sizes = np.arange(4, 804, 4)
    cost = fit(sizes, np.where(sizes < 200, 3 + 0.5 * sizes, 60 + 0.25 * sizes))
    for size in (40, 400):
        load = workload([size], [1.0])
        assert iteration("single", load, cost) == same(1.0 + cost.seconds(size))


def test_turns_as_asked_and_else_until_steady():
    load, cost = workload([80, 40], [3.0, 2.0]), Linear(2.0, 0.125)
    plan, network = planned("wfbp", load, cost), Network({"all_reduce": cost})
    assert simulate(plan, load, network, turns=7).turns == 7
    starts = simulate(plan, load, network).turn_starts()
    assert starts[-1] - starts[-2] == pytest.approx(starts[-2] - starts[-3], rel=1e-9)


def test_what_the_plan_needs_and_nobody_gives_is_named():
    load, cost = workload([80, 40], [3.0, 2.0]), Linear(2.0, 0.125)
    plan, network = planned("wfbp", load, cost), Network({"all_reduce": cost})
    with pytest.raises(InputError, match="no workload for rank 1"):
        simulate(plan, {0: load, 2: load}, network)
    with pytest.raises(InputError, match="no layer 'layer2'"):
        simulate(plan, workload([80], [1.0]), network)
    with pytest.raises(InputError, match=r"no cost for 'all_reduce' .* has: send"):
        simulate(plan, load, Network({"send": cost}))


def test_a_plan_that_is_stuck_is_refused():
    plan = tiny.async_server(2)
    worker = plan.roles[1]
    body = tuple(dataclasses.replace(op, tag=9) if op.name == "push" else op for op in worker.body)
    stuck: Plan = dataclasses.replace(plan, roles=(plan.roles[0], Role("worker", worker.ranks, body)))
    load = workload([8 * size for size in tiny.SIZES], [1.0] * 4, dtype="float64")
    with pytest.raises(InputError, match="stuck"):
        simulate(stuck, load, Network({"send": Linear(1.0, 0.1)}))


# Interference


def slowed(computation, communication, size=1):
    return Interference(points=(InterferencePoint(bytes=size, computation=computation, communication=communication),))


def spans(trace, rank=0):
    return {span.operation: (span.start, span.end) for span in trace.of(rank, 0)}


def test_computation_beside_a_message_ends_first():
    """From 10 s on 10 s of computation at rate 1/2, the message (2 + 8 s) at 1/4; alone from 30 s on, 5 s are left."""
    load, cost = workload([80, 40], [10.0, 10.0]), Linear(2.0, 0.1)
    times = spans(
        simulate(planned("wfbp", load, cost), load, Network({"all_reduce": cost}), turns=1, interference=slowed(2, 4))
    )
    assert times["ready:layer1"] == (10.0, same(30.0))
    assert times["message0"] == (10.0, same(35.0))
    assert times["message1"] == (same(35.0), same(41.0))  # nobody computes any more


def test_a_message_beside_computation_ends_first():
    """The message at rate 2/3 takes 15 s, in which 7.5 of 20 s are computed; the other 12.5 s follow at full rate."""
    load, cost = workload([80, 40], [10.0, 20.0]), Linear(2.0, 0.1)
    times = spans(
        simulate(planned("wfbp", load, cost), load, Network({"all_reduce": cost}), turns=1, interference=slowed(2, 1.5))
    )
    assert times["message0"] == (10.0, same(25.0))
    assert times["ready:layer1"] == (10.0, same(37.5))
    assert times["message1"] == (same(37.5), same(43.5))


def test_a_message_is_slowed_where_any_of_its_ranks_computes():
    load = workload([80, 40], [10.0, 10.0])
    slow = workload([80, 40], [10.0, 30.0])
    cost = Linear(2.0, 0.1)
    plan, network = planned("wfbp", load, cost, ranks=2), Network({"all_reduce": cost})
    trace = simulate(plan, {0: load, 1: slow}, network, turns=1, interference=slowed(1, 4))
    assert spans(trace, 0)["ready:layer1"] == (10.0, 20.0)
    assert spans(trace, 0)["message0"] == (10.0, same(42.5))  # 30 s at rate 1/4 beside rank 1, then 2.5 s
    assert spans(trace, 1)["ready:layer1"] == (10.0, 40.0)


def test_two_messages_share_their_link_and_both_slow_the_rank():
    """Lane 1 from 10 s, lane 2 from 30 s on: computation is as slow as the worse of the two makes it."""
    load, cost = workload([800, 80, 8], [10.0, 10.0, 10.0]), Linear(0.0, 0.1)
    factors = Interference(
        points=(
            InterferencePoint(bytes=80, computation=4, communication=1),
            InterferencePoint(bytes=800, computation=2, communication=1),
        )
    )
    plan = ssgd.plan("lanes", load, tuple(Message(i, i, f"lane{i}") for i in range(3)), 2)
    times = spans(simulate(plan, load, Network({"all_reduce": cost}), turns=1, interference=factors))
    assert times["ready:layer2"] == (10.0, same(30.0))  # at half the rate beside 800 B
    assert times["message1"] == (same(30.0), same(46.0))  # 8 s of transfer at half the link
    # beside both 16 s at a quarter of the rate, then 6 s of computation at half the rate
    assert times["ready:layer1"] == (same(30.0), same(58.0))
    # 20 + 8 s of its 80 s by 46 s, alone until 58 s; then 0.8 s of message2 at half the link
    assert times["message0"] == (10.0, same(98.0 + 0.8))


@pytest.mark.parametrize("name", sorted(tiny.every_kind()))
def test_factors_of_one_change_nothing(name):
    plan = tiny.every_kind()[name]
    sizes = [8 * (tensor.stop - tensor.start) for tensor in plan.tensors]
    backward = [float(i + 1) for i in range(len(sizes))]
    names = [tensor.name for tensor in plan.tensors]
    load = workload(sizes, backward, forward=2.0, forwards=backward, update=1.0, dtype="float64", names=names)
    kinds = (*POSTCONDITION, "send", *on_axes("node", "local"))
    network = Network({kind: Linear(3.0, 0.125) for kind in kinds})
    each = {rank: load.model_copy(update={"forward_seconds": 2.0 + 0.3 * rank}) for rank in range(plan.ranks)}
    plain = simulate(plan, each, network, turns=3)
    beside = simulate(plan, each, network, turns=3, interference=slowed(1, 1))
    key = [span._replace(start=0.0, end=0.0) for span in sorted(plain.spans)]
    assert sorted(key) == sorted(span._replace(start=0.0, end=0.0) for span in beside.spans)
    ends = {(span.rank, span.turn, span.operation): (span.start, span.end) for span in beside.spans}
    for span in plain.spans:
        assert ends[span.rank, span.turn, span.operation] == pytest.approx((span.start, span.end), rel=1e-9)


@given(load=workloads(), cost=costs)
@settings(max_examples=30)
def test_interference_never_makes_a_schedule_faster(load, cost):
    for name in schedules.names():
        plan, network = planned(name, load, cost), Network({"all_reduce": cost})
        slower = simulate(plan, load, network, interference=slowed(1.5, 2.0)).iteration_seconds()
        assert slower >= simulate(plan, load, network).iteration_seconds() * (1 - 1e-9)
    # what nothing overlaps nothing slows
    for name in ("naive", "single"):
        plan = planned(name, load, cost)
        slower = simulate(plan, load, network, interference=slowed(1.5, 2.0)).iteration_seconds()
        assert slower == same(simulate(plan, load, network).iteration_seconds())


def test_handing_over_to_another_lane_takes_its_time_and_a_row_of_messages_does_not():
    """From ready to message0 and from message1 to the update 0.5 s each; message1 waits for the lane, not a thread."""
    load, cost = workload([80, 40], [10.0, 1.0], update=1.0), Linear(2.0, 0.1)
    factors = Interference(points=slowed(1, 1).points, handover_seconds=0.5)
    plan = planned("wfbp", load, cost)
    times = spans(simulate(plan, load, Network({"all_reduce": cost}), turns=1, interference=factors))
    assert times["ready:layer1"] == (10.0, same(11.0))
    assert times["message0"] == (same(10.5), same(20.5))
    assert times["message1"] == (same(20.5), same(26.5))
    assert times["update"] == (same(27.0), same(28.0))

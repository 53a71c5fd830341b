"""Sums by level: which plans can have them, that they sum what all-reduces sum, and what they cost."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tiny_plans as tiny
from changed_plans import bases, judge
from gradsync import sparse, topologies
from gradsync.check import PlanError, check
from gradsync.configuration import schemes, sent_kinds
from gradsync.configuration.schemes import Scheme
from gradsync.costs import Linear, Network, alpha_beta
from gradsync.engine.by_level_cost import ByLevelCost
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.experiments import costs
from gradsync.plan import Axis, Collective, Plan
from gradsync.sparse import Way
from gradsync.transforms import accumulation, clipping, loss_scaling, narrow_wire, statistics
from gradsync.transforms.by_level import by_level
from tiny_workloads import workload

TURNS = 4
PLANS = bases.every()
SUMMED = [
    *("synchronous 2", "synchronous 3", "two lanes 2", "repeated", "wfbp", "wfbp accumulated", "wfbp clipped"),
    *("mgwfbp with statistics", "mgwfbp accumulated with statistics", "kway", "adam", "striped", "ascwfbp"),
    *("update between gradients", "exchanged", "uneven roles 3 native", "lars"),
]
BESIDE = ["mgwfbp narrow", "mgwfbp scaled", "adam scaled", "scaled by message"]
ALL_REDUCE = Linear(3.0, 1e-3)
BACKWARD, FORWARD = 2.0, 1.0


def way(nodes: int, local: int) -> Way:
    topology = topologies.parse(f"dense_gpu:{nodes},{local}")
    return sparse.way("hitopk", topology, topology.hosts)


def on_nodes(plan: Plan) -> Plan:
    """On one node of all of its ranks, and on two if they are an even number above two."""
    return by_level(plan, way(2, plan.ranks // 2) if plan.ranks in (4, 6) else way(1, plan.ranks))


def ends(plan: Plan) -> list[dict[str, np.ndarray]]:
    return evaluate(plan, TURNS, tiny.pull, judge.first(plan), dtype="float64")


@pytest.mark.parametrize("base", sorted(PLANS.keys() - {*SUMMED, *BESIDE}))
def test_other_plans_are_refused_by_name(base):
    with pytest.raises(InputError, match="sums by level"):
        on_nodes(PLANS[base])


@pytest.mark.parametrize("base", BESIDE)
def test_what_is_scaled_or_narrow_passes_the_check(base):
    check(on_nodes(PLANS[base]))


@pytest.mark.parametrize("base", SUMMED)
def test_sums_by_level_are_the_sums(base):
    plan = on_nodes(PLANS[base])
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.messages() == PLANS[base].messages()
    for ours, theirs in zip(ends(plan), ends(PLANS[base]), strict=True):
        np.testing.assert_allclose(ours["parameter"], theirs["parameter"], rtol=1e-12, atol=1e-12)


def of_four(**how) -> Plan:
    return schemes.plan(Scheme(name="one", schedule="wfbp", collective="native_by_level"), LOAD, ALL_REDUCE, 4, **how)


LOAD = workload([12, 4, 400], [BACKWARD] * 3, forward=FORWARD)


def test_three_collectives_carry_a_message_and_an_element_travels_whole():
    (role,) = of_four(ranks_a_node=2).roles
    sent = [(op.name, op.kind, op.over) for op in role.body if isinstance(op, Collective)]
    assert sent == [
        ("scatter0", "reduce_scatter", "local"),
        ("sum0", "all_reduce", "node"),
        ("gather0", "all_gather", "local"),
        ("message1", "all_reduce", "world"),
        ("scatter2", "reduce_scatter", "local"),
        ("sum2", "all_reduce", "node"),
        ("gather2", "all_gather", "local"),
    ]
    by_name = {op.name: op for op in role.body}
    assert by_name["update"].after[-1] == "gather2"
    assert by_name["sum0"].writes[0].mine == ("local",)


@pytest.mark.parametrize("dropped", ["scatter0", "sum0", "gather0"])
def test_a_collective_that_is_dropped_is_found(dropped):
    plan = of_four(ranks_a_node=2)
    (role,) = plan.roles
    kept = [op for op in role.body if op.name != dropped]
    body = tuple(
        dataclasses.replace(op, after=tuple(name for name in op.after if name != dropped)) if op.verb != "ready" else op
        for op in kept
    )
    with pytest.raises(PlanError):
        check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),)))


@pytest.mark.parametrize(
    "more",
    [
        lambda plan: clipping.clip(plan, 0.5),
        lambda plan: statistics.broadcast(plan, 7),
        loss_scaling.scale_loss,
        lambda plan: clipping.clip(loss_scaling.scale_loss(plan), 0.5),
    ],
)
@pytest.mark.parametrize("wire", ["", "float32"])
def test_what_a_step_has_besides_goes_with_them(more, wire):
    plan = accumulation.accumulate(PLANS["wfbp"], 2)
    plan = narrow_wire.narrow(plan, wire) if wire else plan
    check(more(on_nodes(plan)))


@pytest.mark.parametrize("optimizer", ["lars", "lamb"])
def test_norms_are_dealt_after_them(optimizer):
    scheme = Scheme(name="one", schedule="wfbp", collective="native_by_level", pto=True)
    plan = schemes.plan(scheme, LOAD, ALL_REDUCE, 4, ranks_a_node=2, optimizer=optimizer)
    check(plan)
    assert any(op.kind == "all_gather" and op.over == "node" for op in plan.roles[0].body if op.verb == "collective")


@pytest.mark.parametrize("elements", [1, 3, 13, 1000])
@pytest.mark.parametrize("shape", [(1, 4), (2, 2), (3, 4), (4, 1)])
def test_a_message_costs_what_the_simulator_has_for_it(shape, elements):
    of = way(*shape)
    places = {axis.name: axis.size for axis in of.axes}
    network = alpha_beta.with_axes(alpha_beta.around(ALL_REDUCE, of.ranks), of.ranks, places)
    load = workload([4 * elements], [BACKWARD], forward=FORWARD)
    scheme = Scheme(
        name="one", schedule="single", collective="native_by_level", topology=f"dense_gpu:{shape[0]},{shape[1]}"
    )
    plan = schemes.plan(scheme, load, ALL_REDUCE, of.ranks, network=Network(network.costs))
    seconds = simulate(plan, load, network).iteration_seconds() - BACKWARD - FORWARD
    cost = ByLevelCost.around(ALL_REDUCE, of, load, None)
    assert cost.seconds(4.0 * elements) == pytest.approx(seconds, rel=0.02)  # slices differ by an element
    assert 0 < cost.startup_seconds(4 * elements) <= seconds
    sizes = np.array([4.0 * elements, 4000.0])
    np.testing.assert_allclose(cost.seconds(sizes), [cost.seconds(size) for size in sizes])
    assert cost.least_transfer_seconds(4 * elements) <= seconds


@pytest.mark.parametrize("more", ["", ",latency_inside=1e-6,latency_between=1.3e-5"])
def test_on_links_they_take_what_the_rings_of_2dtar_take(more):
    links, times = "alpha=2e-5,inside=1.2e10,between=3.1e9" + more, []
    load = workload([4_000_000] * 5, [1e-4] * 5, forward=1e-3)
    for collective in ("torus2d", "native_by_level"):
        scheme = Scheme(name="one", schedule="wfbp", collective=collective, topology="dense_gpu:4,8")
        known = costs.of_text(links, scheme, 32)
        sent = sent_kinds.of_scheme(scheme, 32)
        known = costs.on_axes(known, links, sent.axes, 32, sent.kinds)
        plan = schemes.plan(scheme, load, known.all_reduce, 32, network=known.network)
        times.append(simulate(plan, load, known.network).iteration_seconds())
    assert times[0] == pytest.approx(times[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"compressor": "exact_topk"}, "only with a collective of sparse messages"),
        ({"compressor": "powersgd"}, "sums whole gradients, and compressor 'powersgd' sends something else"),
        ({"schedule": "dear"}, "sums gradients on all ranks, which update 'decoupled' does not: choose update"),
        ({"topology": "switch"}, "needs 2 levels that ranks fill whole"),
        ({"topology": "dense_gpu:2,3"}, "needs 2 levels that ranks fill whole"),
    ],
)
def test_what_does_not_go_with_it_is_refused(changes, message):
    scheme = Scheme(**{"name": "one", "schedule": "wfbp", "collective": "native_by_level", **changes})

    def refuse():
        scheme.refuse_nonsense("schemes")
        scheme.refuse_ranks(4)

    with pytest.raises(InputError, match=message):
        refuse()


def test_a_way_of_other_ranks_is_refused():
    for other in (way(2, 2), Way(None, Axis("world", 2))):
        with pytest.raises(InputError, match="sums by level needs a plan without axes, of"):
            by_level(PLANS["wfbp"] if other.inside else PLANS["synchronous 2"], other)

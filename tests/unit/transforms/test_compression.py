"""Compression: which plans can have sparse messages, and that all elements of them are what dense ones are."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import tiny_plans as tiny
from changed_plans import bases, judge
from gradsync import compressors, sparse, topologies
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError
from gradsync.plan import Buffer, Collective, Local, Plan, Ref
from gradsync.sparse import Compression
from gradsync.transforms import accumulation, clipping, loss_scaling, narrow_wire, statistics
from gradsync.transforms.compression import compress

TURNS = 4
PLANS = bases.every()
COMPRESSIBLE = [
    *("synchronous 2", "synchronous 3", "two lanes 2", "repeated", "wfbp", "wfbp accumulated", "wfbp clipped"),
    *("mgwfbp with statistics", "mgwfbp accumulated with statistics", "kway", "adam", "striped", "ascwfbp"),
    *("update between gradients", "exchanged", "uneven roles 3 native", "dealt ratios"),
    *("lars", "lars by pto", "lamb by pto", "lars by pto, more ranks than layers"),
]


def compression(name: str, shape: tuple[int, int], density: float, feedback: bool = True) -> Compression:
    """On so many nodes of so many ranks."""
    topology = topologies.parse(f"dense_gpu:{shape[0]},{shape[1]}")
    return Compression(sparse.way(name, topology, topology.hosts), "exact_topk", density, feedback)


def on_all(plan: Plan, density: float = 1.0, feedback: bool = True) -> Plan:
    return compress(plan, compression("allgather_sparse", (1, plan.ranks), density, feedback))


def ends(plan: Plan) -> list[dict[str, np.ndarray]]:
    return evaluate(plan, TURNS, tiny.pull, judge.first(plan), dtype="float64")


@pytest.mark.parametrize("base", sorted(PLANS.keys() - COMPRESSIBLE))
def test_other_plans_are_refused_by_name(base):
    with pytest.raises(InputError, match="compression"):
        on_all(PLANS[base], 0.3)


@pytest.mark.parametrize("base", COMPRESSIBLE)
def test_sparse_messages_pass_the_check(base):
    plan = on_all(PLANS[base], 0.3)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.messages() == PLANS[base].messages()


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("base", COMPRESSIBLE)
def test_all_elements_are_what_dense_messages_carry(base, feedback):
    plan = PLANS[base]
    for ours, theirs in zip(ends(on_all(plan, 1.0, feedback)), ends(plan), strict=True):
        np.testing.assert_allclose(ours["parameter"], theirs["parameter"], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sparse.names())
@pytest.mark.parametrize("shape", [(2, 2), (4, 1), (1, 4), (2, 3), (3, 2)])
def test_a_sparse_sum_is_that_of_the_largest_of_each_slice(name, shape):
    """One message, no feedback: computed here from the gradients alone, as Algorithm 2 says."""
    nodes, local = shape if name == "hitopk" else (shape[0] * shape[1], 1)
    of = compression(name, shape, 0.25, feedback=False)
    plan = compress(tiny.synchronous(nodes * local, (13,)), of)
    check(plan)
    k = max(1, round(0.25 * -(-13 // local)))
    gradients = np.array([tiny.pull(rank, 0, tiny.start(13)) for rank in range(nodes * local)])
    expected = np.zeros(13)
    for node in range(nodes):
        summed = gradients[node * local : (node + 1) * local].sum(axis=0)
        for place in range(local):
            low, high = place * 13 // local, (place + 1) * 13 // local
            chosen = sorted(range(low, high), key=lambda i: -abs(summed[i]))[:k]
            expected[chosen] += summed[chosen]
    (end, *_) = evaluate(plan, 1, tiny.pull, {"parameter": tiny.start(13)}, dtype="float64")
    np.testing.assert_allclose(end["gradient"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", sparse.names())
def test_nothing_is_lost_with_feedback(name):
    """What has been sent in all turns, and what is left on all ranks, are all gradients."""
    of = compression(name, (2, 2), 0.2)
    plan = compress(tiny.synchronous(4, (13, 6)), of)
    applied = tiny.start(19) - ends_from_start(plan)[0]["parameter"]
    left = np.zeros(19)
    for rank, end in enumerate(ends_from_start(plan)):
        own = np.zeros(19)
        for op in plan.roles[0].flat:
            if isinstance(op, Local) and op.kernel == "encode_exact_topk":
                low, high = plan.mesh.bounds(op.writes[2], rank)
                own[low:high] = end["residual"][low:high]
        left += own
    update = next(op for op in plan.roles[0].flat if op.name == "update")
    rate = update.arguments["lr"] * update.arguments["scale"]
    total = sum(tiny.fixed_pull(rank, turn, tiny.start(19)) for rank in range(4) for turn in range(TURNS))
    np.testing.assert_allclose(applied / rate + left, total, rtol=1e-9, atol=1e-9)


def ends_from_start(plan: Plan) -> list[dict[str, np.ndarray]]:
    return evaluate(plan, TURNS, tiny.fixed_pull, {"parameter": tiny.start(19)}, dtype="float64")


@pytest.mark.parametrize(
    ("elements", "density", "shape", "k"),
    [
        (1000, 0.01, (2, 4), 2),
        (1000, 0.01, (8, 1), 10),
        (9, 1e-6, (2, 4), 1),
        (3, 1.0, (2, 4), 0),
        (13, 1.0, (2, 4), 4),
    ],
)
def test_each_rank_sends_the_share_of_its_slice(elements, density, shape, k):
    assert compression("hitopk", shape, density).selected(elements) == k


def test_a_message_that_is_too_short_to_be_cut_travels_whole():
    plan = compress(tiny.synchronous(4, (13, 1)), compression("hitopk", (1, 4), 0.5))
    check(plan)
    kinds = Counter(op.kind for op in plan.roles[0].flat if isinstance(op, Collective))
    assert kinds == {"reduce_scatter": 1, "all_gather": 3, "all_reduce": 1}
    whole = compress(tiny.synchronous(4, (1, 1)), compression("hitopk", (1, 4), 0.5))
    assert {buffer.role for buffer in whole.buffers} == {"gradient", "parameter"}
    check(whole)


@pytest.mark.parametrize("name", sparse.names())
def test_it_goes_with_other_parts_of_a_step_in_either_order(name):
    plan, of = bases.scheme("mgwfbp", 4), compression(name, (2, 2), 0.3)
    for transform in (
        lambda plan: accumulation.accumulate(plan, 3),
        lambda plan: statistics.broadcast(plan, 4),
        lambda plan: clipping.clip(plan, 0.5),
    ):
        both = compress(transform(plan), of)
        check(both)
        assert {*both.buffers} == {*transform(compress(plan, of)).buffers}
        assert both.roles == transform(compress(plan, of)).roles
    unscaled = compress(bases.scheme("mgwfbp", 4, momentum=0.0), of._replace(feedback=False))
    check(loss_scaling.scale_loss(unscaled))


def test_residuals_and_a_narrow_wire_are_refused():
    plan = on_all(bases.scheme("mgwfbp", 2), 0.3)
    with pytest.raises(InputError, match="loss scaling needs a plan without residuals"):
        loss_scaling.scale_loss(plan)
    with pytest.raises(InputError, match="compression needs a plan without a loss scale, or no error feedback"):
        on_all(loss_scaling.scale_loss(bases.scheme("mgwfbp", 2)), 0.3)
    with pytest.raises(InputError, match="it has no such message"):
        narrow_wire.narrow(plan, "float16")
    with pytest.raises(InputError, match="compression needs a plan without axes, of 4 rank"):
        compress(bases.scheme("mgwfbp", 2), compression("hitopk", (2, 2), 0.3))
    with pytest.raises(InputError, match="'message0' is no all-reduce of the backend's own"):
        on_all(tiny.synchronous(2, algorithm="ring"))
    with pytest.raises(InputError, match="already"):
        on_all(with_buffer(bases.scheme("mgwfbp", 2), Buffer("values", 3)))


def with_buffer(plan: Plan, buffer: Buffer) -> Plan:
    return dataclasses.replace(plan, buffers=(*plan.buffers, buffer))


def test_messages_lie_apart():
    plan = on_all(bases.scheme("wfbp", 3), 0.3)
    refs = [op.writes[0] for op in plan.communications() if op.writes[0].buffer == "values"]
    assert refs[0] == Ref("values", 0, refs[0].stop)
    assert all(before.stop == after.start for before, after in pairwise(refs))
    assert refs[-1].stop == plan.buffer["values"].elements


# Codes


def coded(plan: Plan, compressor: str, feedback: bool) -> Plan:
    options = tuple(compressors.options(compressor).items())
    on = compression("allgather_sparse", (1, plan.ranks), 1.0)
    return compress(plan, on._replace(compressor=compressor, feedback=feedback, options=options))


@pytest.mark.parametrize("base", COMPRESSIBLE)
@pytest.mark.parametrize("compressor", compressors.coding())
def test_codes_pass_the_check(base, compressor):
    plan = coded(PLANS[base], compressor, True)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    assert plan.messages() == PLANS[base].messages()


@pytest.mark.parametrize("compressor", compressors.coding())
def test_of_codes_nothing_is_lost_with_feedback(compressor):
    plan = coded(tiny.synchronous(3, (13, 6)), compressor, True)
    ended = ends_from_start(plan)
    update = next(op for op in plan.roles[0].flat if op.name == "update")
    rate = update.arguments["lr"] * update.arguments["scale"]
    sent = (tiny.start(19) - ended[0]["parameter"]) / rate
    total = sum(tiny.fixed_pull(rank, turn, tiny.start(19)) for rank in range(3) for turn in range(TURNS))
    np.testing.assert_allclose(sent + sum(end["residual"] for end in ended), total, rtol=1e-9, atol=1e-9)
    assert max(np.abs(end["residual"]).max() for end in ended) > 1e-3


@pytest.mark.parametrize("compressor", compressors.coding())
def test_codes_and_a_loss_scale_are_refused(compressor):
    plan = coded(bases.scheme("mgwfbp", 2), compressor, False)
    with pytest.raises(
        InputError, match=f"loss scaling makes .* 'encode0' encodes them by kernel 'encode_{compressor}'"
    ):
        loss_scaling.scale_loss(plan)

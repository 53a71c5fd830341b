"""Sparse messages that are lost, encoded twice, decoded from another or sent along another axis are found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tiny_plans as tiny
from gradsync import compressors, sparse, topologies
from gradsync.check import PlanError, check
from gradsync.plan import Local, Plan, Ref
from gradsync.sparse import Compression
from gradsync.transforms.compression import compress
from plan_edits import changed, index_of, setting, without
from refusals import marked_in_the_grid

SIZES = (6, 6)


def compressed(name: str, nodes: int, local: int) -> Plan:
    topology = topologies.parse(f"dense_gpu:{nodes},{local}")
    of = Compression(sparse.way(name, topology, topology.hosts), "exact_topk", 0.4)
    return compress(tiny.synchronous(topology.hosts, SIZES), of)


NAIVE = compressed("allgather_sparse", 1, 2)
NODES = compressed("hitopk", 2, 2)
PLANS = {"allgather_sparse": NAIVE, "hitopk": NODES}


def again(name: str, **values: Any):
    """The operation a second time, right after the first."""

    def edit(body):
        at = index_of(body, name)
        body.insert(at + 1, dataclasses.replace(body[at], name="again", **values))

    return edit


def swapped(first: str, second: str):
    def edit(body):
        one, other = index_of(body, first), index_of(body, second)
        body[one], body[other] = body[other], body[one]

    return edit


def reads_of(plan: Plan, name: str) -> tuple[Ref, ...]:
    return next(op.reads for op in plan.roles[0].flat if op.name == name)


def with_residual_of(plan: Plan, name: str, start: int) -> Plan:
    op = next(op for op in plan.roles[0].flat if op.name == name)
    residual = op.writes[2]._replace(start=start, stop=start + SIZES[0])
    return changed(plan, setting(name, writes=(*op.writes[:2], residual)))


def cleared(body):
    residual = Ref("residual", 0, SIZES[0])
    body.insert(index_of(body, "decode0"), Local(name="clear", lane="network", kernel="fill", writes=(residual,)))


FAULTS = {
    "nobody gathers values": (
        changed(NAIVE, without("gather_values0")),
        r"'decode0' reads values.* nothing has written",
    ),
    "nobody gathers indices": (
        changed(NAIVE, without("gather_indices0")),
        r"'decode0' reads indices.* nothing has written",
    ),
    "nobody gathers values between nodes": (
        changed(NODES, without("gather_values1")),
        r"'decode1' reads values.* nothing has written",
    ),
    "nobody decodes": (
        changed(NAIVE, without("decode0")),
        r"missing gradient: 'layer2' reaches 'update' without the gradients of rank",
    ),
    "nobody decodes between nodes": (
        changed(NODES, without("decode0")),
        r"missing gradient: 'layer2' reaches 'update' without the gradients of rank\(s\) 2, 3",
    ),
    "a node that doesn't sum": (
        changed(changed(NODES, setting("encode0", after=("ready:layer2",))), without("scatter0")),
        r"missing gradient: 'layer2' reaches 'decode0' without the gradients of rank\(s\) 1, 3",
    ),
    "a node that doesn't gather": (
        changed(NODES, without("gather0")),
        r"'update' reads gradient\[3:6\], which nothing has written",
    ),
    "encoded twice": (
        changed(NAIVE, again("encode0")),
        r"'again' encodes gradients a second time, which are in the residual already",
    ),
    "encoded twice between nodes": (
        changed(NODES, again("encode1")),
        r"'again' encodes gradients a second time, which are in the residual already",
    ),
    "decoded from another message": (
        changed(NAIVE, setting("decode1", reads=reads_of(NAIVE, "decode0"))),
        r"'decode1' puts gradient of 'layer2' in the place of others",
    ),
    "values of one message with indices of another": (
        changed(NAIVE, setting("decode1", reads=(reads_of(NAIVE, "decode0")[0], reads_of(NAIVE, "decode1")[1]))),
        r"'decode1' decodes the values and the indices of one message",
    ),
    "another gradient's residual": (
        with_residual_of(NODES, "encode1", 0),
        r"'encode1' adds the residual of the same gradients to them, and finds residual",
    ),
    "a residual that is cleared": (changed(NAIVE, cleared), r"'clear' writes 'residual', a buffer of role residual"),
    "encoded before its node has summed": (
        changed(NODES, swapped("scatter0", "encode0")),
        r"race on gradient.*'ready:layer2' and 'encode0' touch it",
    ),
    "gathered inside nodes instead of between them": (
        changed(NODES, setting("gather_values0", over="local")),
        r"'gather_values0' reads values.* which nothing has written",
    ),
    "summed between nodes and not inside": (
        changed(NODES, setting("scatter0", over="node")),
        r"'encode0' reads gradient\[3:6\], which nothing has written",
    ),
    "an update that requires all elements": (
        changed(NAIVE, setting("update", requires="sum")),
        r"missing gradient: .* reaches 'update' without 'sum'",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_in_order_pass(name):
    check(PLANS[name])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)
    assert marked_in_the_grid(plan)


@pytest.mark.parametrize("name", PLANS)
def test_no_operation_of_a_message_can_be_left_out(name):
    plan = PLANS[name]
    for op in plan.roles[0].flat:
        if op.verb in ("collective", "local"):
            with pytest.raises(PlanError):
                check(changed(plan, without(op.name)))


# Codes


def coded(name: str, compressor: str, nodes: int, local: int, feedback: bool = True) -> Plan:
    topology = topologies.parse(f"dense_gpu:{nodes},{local}")
    options = tuple(compressors.options(compressor).items())
    of = Compression(sparse.way(name, topology, topology.hosts), compressor, feedback=feedback, options=options)
    return compress(tiny.synchronous(topology.hosts, SIZES), of)


CODED = {
    f"{compressor} by {name}": coded(name, compressor, *shape)
    for compressor in compressors.coding()
    for name, shape in {"allgather_sparse": (1, 2), "hitopk": (2, 2)}.items()
}
SIGNS = CODED["sign by allgather_sparse"]
LEVELS = CODED["qsgd by allgather_sparse"]
FAULTS_OF_CODES = {
    "codes of another message": (
        changed(SIGNS, setting("decode1", reads=(reads_of(SIGNS, "decode0")[0], reads_of(SIGNS, "decode1")[1]))),
        r"'decode1' decodes the codes and the scales of one message, and finds those of several",
    ),
    "scales in the place of other messages' scales": (
        changed(SIGNS, setting("decode1", reads=(reads_of(SIGNS, "decode1")[0], reads_of(SIGNS, "decode0")[1]))),
        r"'decode1' decodes the codes and the scales of one message",
    ),
    "the code of one rank alone": (
        changed(SIGNS, setting("decode0", reads=tuple(ref._replace(stop=1) for ref in reads_of(SIGNS, "decode0")))),
        r"missing gradient: 'layer2' reaches 'decode0' without the gradients of rank\(s\) 1",
    ),
    "encoded twice": (
        changed(SIGNS, again("encode0")),
        r"'again' encodes gradients a second time, which are in the residual already",
    ),
    "a residual that is cleared": (changed(SIGNS, cleared), r"'clear' writes 'residual', a buffer of role residual"),
    "another gradient's residual": (
        with_residual_of(SIGNS, "encode1", 0),
        r"'encode1' adds the residual of the same gradients to them, and finds residual",
    ),
    "a code that is too short": (
        changed(LEVELS, setting("encode0", arguments={"levels": 7.0, "bucket": 512.0})),
        r"'encode0': kernel 'encode_qsgd' has 6 bytes and 1 scales on rank 0: a code of 6 elements takes 3 and 1",
    ),
    "codes of shorter slices": (
        changed(SIGNS, setting("decode0", arguments={"longest": 5.0})),
        r"'decode0': kernel 'decode_sign' has codes of 5 elements, and a rank decodes 6 at most",
    ),
    "decoded by other levels of as many bits": (
        changed(LEVELS, setting("decode0", arguments={"levels": 126.0, "bucket": 512.0, "longest": 6.0})),
        r"'decode0' decodes by qsgd, levels 126, bucket 512 what was encoded by qsgd, levels 127, bucket 512",
    ),
    "half a level": (
        changed(LEVELS, setting("encode0", arguments={"levels": 7.5})),
        r"'encode0': kernel 'encode_qsgd' needs a whole number as levels, not 7.5",
    ),
}


@pytest.mark.parametrize("name", CODED)
def test_codes_in_order_pass_and_no_operation_of_them_can_be_left_out(name):
    plan = CODED[name]
    check(plan)
    for op in plan.roles[0].flat:
        if op.verb in ("collective", "local"):
            with pytest.raises(PlanError):
                check(changed(plan, without(op.name)))


@pytest.mark.parametrize("fault", FAULTS_OF_CODES)
def test_a_planted_fault_of_codes_is_found(fault):
    plan, message = FAULTS_OF_CODES[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)

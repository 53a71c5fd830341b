"""A gradient that is missing, doubled, early, late or in the place of another is found."""

from __future__ import annotations

import dataclasses

import pytest

import tiny_plans as tiny
from changed_plans import bases
from gradsync.check import PlanError, check
from gradsync.plan import Collective, Need, Plan, Ready, Ref, Role
from gradsync.rounds.lowering import lowered
from plan_edits import changed, index_of, setting, without
from refusals import marked_in_the_grid

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
SWEEP = tiny.easgd_round_robin(2)
SHARDED = tiny.sharded(2)
SPARSE = tiny.sparse(2)
BY_LAYER = bases.sparse_by_layer(2)
TWO_LEVEL = tiny.two_level()
RINGS = tiny.synchronous(2, algorithm="ring")
RING = lowered(RINGS)
CLIPPED = bases.scheme("wfbp", 2, clip_norm=0.5)
NARROW = bases.scheme("wfbp", 2, wire="float32")
WHOLE = Ref("gradient", 0, 13)


def summed_again(body):
    ref = Ref("gradient", 5, 8)
    body.insert(-1, Collective(name="again", lane="network", reads=(ref,), writes=(ref,)))
    setting("update", after=("again",))(body)


def waiting_for_push(body):
    setting("fetch", after=("push",))(body)


def later_sum(body):
    """What has come is added before it is received: it is that of the turn before."""
    at = index_of(body, "message0.add0.1")
    body[at - 1], body[at] = body[at], body[at - 1]


def twice_on_one_rank() -> Plan:
    """Rank 1 updates once more."""
    (role,) = PLAN.roles
    again = dataclasses.replace(role.body[-1], name="again", after=("update",))
    forward = dataclasses.replace(role.body[0], after_previous=("again",))
    other = (forward, *role.body[1:], again)
    return dataclasses.replace(PLAN, roles=(Role("one", (0,), role.body), Role("two", (1,), other)))


def decoding_its_own(body):
    setting("decode", after=("encode",))(body)


def indices_first(body):
    """The indices leave before they are there."""
    body.insert(0, body.pop(index_of(body, "gather_indices")))
    setting("gather_indices", after=(), after_previous=("decode",))(body)
    setting("encode", after=("gather_indices",))(body)


def encoded_again(body):
    """Encode a second time before anything is sent."""
    again = dataclasses.replace(body[index_of(body, "encode")], name="encode2")
    body.insert(index_of(body, "encode") + 1, again)
    for name in ("gather_values", "gather_indices"):
        setting(name, after=("encode2",))(body)


def updated_before_it_is_sent(body):
    """The worker changes its parameters, then sends them."""
    push = body.pop(index_of(body, "push"))
    body.append(dataclasses.replace(push, after=("update",)))
    setting("update", after=("centre",))(body)
    setting("forward", after_previous=("push",))(body)


def pulled_again(body):
    again = dataclasses.replace(body[index_of(body, "pull1")], name="again", after=("pull1",))
    body.insert(index_of(body, "pull1") + 1, again)
    setting("centre2", after=("again",))(body)
    setting("take2", after=("again",))(body)


FAULTS = {
    "dropped message": (
        changed(PLAN, without("message1")),
        r"missing gradient: 'layer3' reaches 'update' without the gradients of rank",
    ),
    "half a message": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 4),), writes=(Ref("gradient", 0, 4),))),
        r"missing gradient: 'layer4' reaches 'update' without the gradients of rank",
    ),
    "gradient that nobody makes": (
        changed(PLAN, without("ready:layer3")),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that nobody makes ready": (
        changed(changed(PLAN, without("ready:layer3")), setting("message1", after=())),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that nobody uses": (
        changed(PLAN, setting("update", reads=(Ref("gradient", 0, 12),), writes=(Ref("parameter", 0, 12),))),
        r"missing gradient: 'layer1' is made ready and reaches no update",
    ),
    "parameters sent as gradients": (
        changed(changed(SERVER, setting("push", reads=(Ref("parameter", 0, 13),)), role=1), waiting_for_push, role=1),
        r"'apply' missing gradient: it takes gradients and finds parameter",
    ),
    "gradient in the place of others": (
        changed(PLAN, setting("ready:layer4", writes=(Ref("gradient", 5, 10),))),
        r"'ready:layer4': a gradient has its place: backward reads parameter\[0:5\], writes gradient\[0:5\]",
    ),
    "gradient of another tensor": (
        changed(PLAN, setting("ready:layer3", tensor="layer2")),
        r"missing gradient: no operation makes 'layer3' ready",
    ),
    "gradient that is nowhere": (changed(PLAN, setting("ready:layer4", writes=())), r"a gradient has its place"),
    "gradient of the turn before": (
        changed(RING, later_sum, role=0),
        r"'message0.add0.1' reads scratch:message0\[.*, which nothing has written",
    ),
    "update done twice": (twice_on_one_rank(), r"'again' applies gradients of .* to other parameters than they were"),
    "update of the gradient": (
        changed(PLAN, setting("update", writes=(WHOLE,))),
        r"'update' applies gradients of .* to gradient",
    ),
    "update with the norm of a part": (
        changed(CLIPPED, setting("norm", reads=(Ref("gradient", 0, 12),))),
        r"'update' clips with the norm of something else",
    ),
    "update with a norm that nobody computes": (
        changed(changed(CLIPPED, without("norm")), setting("update", after=("message3",))),
        r"'update' reads norm\[0:1\], which nothing has written",
    ),
    "norm of float64 in float32": (
        dataclasses.replace(
            CLIPPED,
            buffers=tuple(dataclasses.replace(b, dtype="float32") if b.name == "norm" else b for b in CLIPPED.buffers),
        ),
        r"'norm': kernel 'norm' of float64 is not a float32",
    ),
    "sums that were scaled differently": (
        changed(changed(NARROW, setting("narrow0", arguments={"scale": 1.0})), lambda body: None),
        r"takes gradients that were scaled differently",
    ),
    "ranks that drift apart": (
        changed(SHARDED, setting("gather:layer3", kind="broadcast", postcondition="copy")),
        r"'update:layer.' .*(drifted apart|as they were before another update, which is lost)",
    ),
    "a gather that gathers nothing": (
        changed(SHARDED, setting("gather:layer3", kind="reduce_scatter", postcondition="shard")),
        r"'gather:layer3' puts sum of parameters in parameter\[5:6\], a buffer for parameter",
    ),
    "both gathers of a sparse sum missing": (
        changed(changed(changed(SPARSE, without("gather_values")), without("gather_indices")), decoding_its_own),
        r"'decode' reads values\[3:6\], which nothing has written",
    ),
    "values of one turn with indices of another": (
        changed(SPARSE, indices_first),
        r"'gather_indices' reads indices\[0:3\], which nothing has written",
    ),
    "gradients encoded twice": (
        changed(SPARSE, encoded_again),
        r"'encode.' encodes gradients a second time, which are in the residual already",
    ),
    "an elastic update that came first": (
        changed(SWEEP, updated_before_it_is_sent, role=1),
        r"pulls .* with a pair of parameters and centre that the other side of the exchange never has",
    ),
    "a centre that takes a difference twice": (
        changed(SWEEP, pulled_again, role=0),
        r"(a second time|that the other side of the exchange never has)",
    ),
    "message that nobody decodes": (
        changed(BY_LAYER, lambda body: [without("decode0")(body), setting("update", after=("decode1",))(body)]),
        r"missing gradient: 'layer2' reaches 'update' without the gradients of rank\(s\) 1",
    ),
    "sent before it is ready": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 8),), writes=(Ref("gradient", 0, 8),))),
        r"'message0' sends gradients that are not ready before it|race on gradient",
    ),
    "summed twice": (changed(PLAN, summed_again), r"'again' sums 'layer3' a second time"),
    "sparse sum missing": (
        changed(changed(SPARSE, without("decode")), setting("update", after=("gather_values", "gather_indices"))),
        r"missing gradient: .* without the gradients of rank\(s\) 1",
    ),
    "shard taken for a sum": (
        changed(SHARDED, setting("update:layer3", reads=(tiny.place("gradient", SHARDED.tensors[1]),))),
        r"'update:layer3': kernel 'sgd' needs ranges of equal length: gradient\[5:8\].*of mine",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


IN_THE_GRID = {
    "dropped message": ["update"],
    "summed twice": ["again"],
    "gradient that nobody uses": ["ready:layer1"],
}


@pytest.mark.parametrize("fault", IN_THE_GRID)
def test_the_message_ends_with_the_grid_and_marks_the_operation(fault):
    marked = marked_in_the_grid(FAULTS[fault][0])
    assert any(name in cell for name in IN_THE_GRID[fault] for cell in marked)


def test_gradients_alone_are_not_enough_without_an_update():
    body = tuple(
        dataclasses.replace(op, after_previous=()) for op in PLAN.roles[0].body if isinstance(op, Need | Ready)
    )
    broken = dataclasses.replace(PLAN, roles=(dataclasses.replace(PLAN.roles[0], body=body),))
    with pytest.raises(PlanError, match=r"lost gradient|reaches no update"):
        check(broken)


def lowered_without(number: int):
    """A ring of three whose sums of one round are left out on rank 1."""
    plan = lowered(tiny.synchronous(3, algorithm="ring"))
    roles = [
        dataclasses.replace(
            role,
            body=tuple(op for op in role.body if role.ranks != (1,) or not op.name.startswith(f"message0.add{number}")),
        )
        for role in plan.roles
    ]
    return dataclasses.replace(plan, roles=tuple(roles))


def test_a_missing_message_across_groups_is_found_with_the_ranks_that_it_would_have_brought():
    body = TWO_LEVEL.roles[0].body
    role = dataclasses.replace(TWO_LEVEL.roles[0], body=tuple(op for op in body if op.name != "message1"))
    peer = TWO_LEVEL.roles[2]
    other = dataclasses.replace(peer, body=tuple(op for op in peer.body if op.name != "message1"))
    roles = (role, TWO_LEVEL.roles[1], other, TWO_LEVEL.roles[3])
    with pytest.raises(PlanError, match=r"without the gradients of rank\(s\) 2, 3"):
        check(dataclasses.replace(TWO_LEVEL, roles=roles))


def test_a_sum_left_out_of_a_lowered_collective_is_found():
    check(lowered(tiny.synchronous(3, algorithm="ring")))
    with pytest.raises(PlanError, match="missing gradient"):
        check(lowered_without(0))


def test_a_group_that_sums_twice_is_found():
    roles = []
    for role in TWO_LEVEL.roles:
        pair = (role.ranks[0] // 2 * 2, role.ranks[0] // 2 * 2 + 1)
        body = [dataclasses.replace(op, ranks=pair) if op.name == "message0" else op for op in role.body]
        roles.append(dataclasses.replace(role, body=tuple(body)))
    # the second sum of message 0 is again within the pair, under one name for each pair
    renamed = [
        dataclasses.replace(
            role,
            body=tuple(
                dataclasses.replace(
                    op,
                    name=f"{op.name}.{role.ranks[0] // 2}" if op.name == "message0" else op.name,
                    after=tuple(f"{name}.{role.ranks[0] // 2}" if name == "message0" else name for name in op.after),
                )
                for op in role.body
            ),
        )
        for role in roles
    ]
    with pytest.raises(PlanError, match="a second time"):
        check(dataclasses.replace(TWO_LEVEL, roles=tuple(renamed)))

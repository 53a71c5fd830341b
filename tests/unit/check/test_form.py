"""A name that doesn't resolve, a range outside of its buffer, an operand too many are found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

import tiny_plans as tiny
from changed_plans import bases
from gradsync.check import PlanError, check, grid
from gradsync.plan import Buffer, Local, Plan, Ref, Repeat, Reply
from plan_edits import appended, changed, setting, setting_inside, with_buffers
from refusals import marked_in_the_grid

PLAN = tiny.synchronous(2)
SERVER = tiny.async_server(2)
SWEEP = tiny.easgd_round_robin(2)
SHARDED = tiny.sharded(2)
SPARSE = tiny.sparse(2)
GROUPS = tiny.in_groups(2, 2)
RINGS = tiny.synchronous(2, algorithm="ring")
WHOLE = Ref("gradient", 0, 13)
SHARDS = bases.with_shards(bases.sharded_model(2))
OWN_SHARD = (Ref("momentum", 0, 5, ("world",)),)
EXCHANGED = tiny.exchanged(3)
MOVED = (Ref("moved", 2, 6),)


def of_two_ranges():
    refs = (Ref("gradient", 0, 2), Ref("gradient", 2, 5))
    return {"reads": refs, "writes": refs}


def shards_of(name: str = "momentum", **how: Any) -> Plan:
    """A plan with shards of a buffer, made otherwise."""
    how = {"mine": ("world",), "ends": SHARDS.buffer["momentum"].ends} | how
    buffers = tuple(dataclasses.replace(each, **how) if each.name == name else each for each in SHARDS.buffers)
    return dataclasses.replace(SHARDS, buffers=buffers)


def of_spare(start: int, stop: int) -> Ref:
    return Ref("gradient", start, stop)


def needed_twice(body):
    body.insert(1, dataclasses.replace(body[0], name="again"))


FAULTS = {
    "a send to oneself": (changed(SWEEP, setting("push", to=1), role=1), r"between rank 1 and all ranks of its role"),
    "a receive from nobody": (changed(SERVER, setting_inside("take", sources=())), r"name each source once"),
    "a tag of 33 bits": (changed(SWEEP, setting("push", tag=1 << 33), role=1), r"tags are 0 to 16777215"),
    "a rail below 0": (changed(SWEEP, setting("push", rail=-1), role=1), r"rails 0 to 15"),
    "a channel without a name": (changed(SWEEP, setting("push", channel=""), role=1), r"'' names no channel"),
    "a lane without a name": (changed(PLAN, setting("message0", lane="a b")), r"'a b' names no lane"),
    "an empty message": (
        changed(SWEEP, setting("push", reads=(Ref("parameter", 4, 4),)), role=1),
        r"a range has at least one",
    ),
    "a send of a piece": (
        changed(SWEEP, setting("push", reads=(Ref("parameter", 0, 13, ("world",)),)), role=1),
        r"'push': a send names whole ranges",
    ),
    "a copy to a range that overlaps": (
        changed(PLAN, appended(Local(name="c", kernel="copy", reads=(of_spare(0, 3),), writes=(of_spare(1, 4),)))),
        r"'c': gradient\[1:4\] and gradient\[0:3\] overlap",
    ),
    "an all-reduce to a range that overlaps": (
        changed(PLAN, setting("message0", reads=(Ref("gradient", 0, 4),), writes=(Ref("gradient", 1, 5),))),
        r"'message0': gradient\[1:5\] and gradient\[0:4\] overlap",
    ),
    "a ring of two ranges": (
        changed(RINGS, setting("message0", **of_two_ranges())),
        r"only one of one range, in place, over an axis can be",
    ),
    "an exchange of unequal pieces": (
        changed(EXCHANGED, setting("message1:there", reads=MOVED, writes=MOVED)),
        r"'message1:there' exchanges pieces of 4 elements of 'moved', which are no 3 equal pieces: take a multiple",
    ),
    "an exchange by what broadcasts": (
        changed(EXCHANGED, setting("message1:there", algorithm="chain")),
        r"collective 'chain' has no all_to_all on 3 ranks; there are those of native, pairwise",
    ),
    "a broadcast by what sums": (
        changed(tiny.reduced_and_broadcast(2), setting("message1", algorithm="ring")),
        r"collective 'ring' has no broadcast on 2 ranks; there are those of native, binary_tree, chain, ",
    ),
    "an exchange that declares a sum": (
        changed(EXCHANGED, setting("message1:there", postcondition="sum")),
        r"postcondition of all_to_all is 'exchange', not 'sum'",
    ),
    "a gather by what has none": (
        changed(SHARDED, setting("gather:layer3", algorithm="binary_tree")),
        r"collective 'binary_tree' has no all_gather on \d ranks; there are those of native, ",
    ),
    "an algorithm that doesn't exist": (
        changed(PLAN, setting("message0", algorithm="magic")),
        r"'magic' does not exist",
    ),
    "levels that an algorithm refuses": (
        changed(tiny.synchronous(4), setting("message0", algorithm="bml", shape=(1, 4))),
        r"collective 'bml' needs levels of one size, not 1 x 4",
    ),
    "a group that is not in order": (
        changed(tiny.sharded(4), setting("gather:layer3", ranks=(0, 3, 1, 2))),
        r"name each once, in rising order",
    ),
    "a layer that doesn't exist": (changed(SHARDED, setting("forward:layer2", layer="x")), r"each of its layers once"),
    "a layer needed twice": (changed(PLAN, needed_twice), r"each pass needs the whole model once"),
    "forward that needs half of the model": (
        changed(PLAN, setting("forward", reads=(Ref("parameter", 0, 6),))),
        r"'forward': forward reads parameter\[0:13\]",
    ),
    "a pass without backward": (
        changed(PLAN, lambda body: body.insert(0, dataclasses.replace(body[0], name="look"))),
        r"each pass needs the whole model once",
    ),
    "a kernel without its argument": (
        changed(PLAN, setting("update", arguments={})),
        r"'update': kernel 'sgd' needs its argument 'lr'",
    ),
    "a kernel with an argument that it doesn't have": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "nesterov": 1.0})),
        r"kernel 'sgd' has no argument 'nesterov'",
    ),
    "a kernel with an argument that is no number": (
        changed(PLAN, setting("update", arguments={"lr": float("nan")})),
        r"kernel 'sgd' needs lr from 0 to below inf, not nan",
    ),
    "momentum without its buffer": (
        changed(PLAN, setting("update", arguments={"lr": 0.1, "momentum": 0.5})),
        r"kernel 'sgd' reads 1 and writes 2 ranges, not 1 and 1",
    ),
    "momentum that something else writes": (
        changed(
            with_buffers(PLAN, Buffer("momentum", 13, "float64", role="momentum")),
            appended(Local(name="forget", kernel="fill", after=("update",), writes=(Ref("momentum", 0, 13),))),
        ),
        r"'forget' writes 'momentum', a buffer of role momentum: only adam, adam_unscaled, adamw, "
        r"adamw_unscaled, elastic_worker, lamb, lars, outer_nesterov, sgd, sgd_scaled, sgd_unscaled do",
    ),
    "momentum that ranks share": (
        with_buffers(PLAN, Buffer("momentum", 13, "float64", shared=True, role="momentum")),
        r"buffer 'momentum', a momentum, is shared by all ranks",
    ),
    "a gradient that ranks share": (
        dataclasses.replace(PLAN, buffers=(dataclasses.replace(PLAN.buffers[0], shared=True), PLAN.buffers[1])),
        r"buffer 'gradient', a gradient, is shared by all ranks",
    ),
    "shards of no part": (
        shards_of(mine=("world",), ends=()),
        r"buffer 'momentum': shards have axes \(mine\) and parts \(ends\)",
    ),
    "shards that ranks share": (shards_of(shared=True), r"buffer 'momentum': .* are no memory that ranks share"),
    "shards whose parts leave a gap at the end": (
        shards_of(ends=(5, 8, 12)),
        r"buffer 'momentum': its parts end one after the other, the last at 13",
    ),
    "shards with a part of nothing": (shards_of(ends=(5, 5, 8, 12, 13)), r"its parts end one after the other"),
    "shards over an axis that is not there": (shards_of(mine=("node",)), r"axis 'node' does not exist"),
    "shards over an axis twice": (
        shards_of(mine=("world", "world")),
        r"buffer 'momentum' is of a piece of momentum\[0:5\] over world, world: name each axis once",
    ),
    "parts that an update takes no part of": (
        shards_of(ends=(5, 12, 13)),
        r"'update:layer2' uses momentum\[8:12\] of mine over world, of which a rank has its own shard alone: a local "
        r"operation takes a whole part, one that ends at 5, 12, 13, of mine over world",
    ),
    "all of what ranks have shards of": (
        changed(SHARDS, setting("update:layer4", writes=(Ref("parameter", 0, 5), Ref("momentum", 0, 5)))),
        r"'update:layer4' uses momentum\[0:5\], of which a rank has its own shard alone",
    ),
    "shards that travel": (
        changed(SHARDS, setting("gather:layer4", reads=OWN_SHARD, writes=OWN_SHARD)),
        r"'gather:layer4' uses momentum\[0:5\] of mine over world, of which a rank has its own shard alone: a local",
    ),
    "parameters that ranks have shards of": (
        shards_of("parameter"),
        r"'forward' uses parameter\[0:13\], of which a rank has its own shard alone",
    ),
    "a buffer of less than nothing": (with_buffers(PLAN, Buffer("spare", -1)), r"buffer 'spare' has -1 elements"),
    "momentum of another length": (
        with_buffers(PLAN, Buffer("momentum", 12, "float64", role="momentum")),
        r"buffer 'momentum' holds a momentum and has 12 elements: all tensors together have 13",
    ),
    "no parameters": (
        dataclasses.replace(PLAN, buffers=(PLAN.buffers[0], dataclasses.replace(PLAN.buffers[1], role="state"))),
        r"it computes, and has 0 buffers of role parameter instead of one",
    ),
    "a scaler of four": (with_buffers(PLAN, Buffer("scaler", 4, role="scaler")), r"a scaler has 3 elements"),
    "message on the compute lane": (
        changed(PLAN, setting("message0", lane="compute")),
        r"a collective on lane 'compute'",
    ),
    "forward on another lane": (changed(PLAN, setting("forward", lane="network")), r"a need on lane 'network'"),
    "gather that claims a sum": (
        changed(SPARSE, setting("gather_values", postcondition="sum")),
        r"postcondition of all_gather is 'gather', not 'sum'",
    ),
    "collective of other ranks": (changed(PLAN, setting("message0", ranks=(0,))), r"'message0' is for ranks \(0,\)"),
    "levels of other ranks": (
        changed(PLAN, setting("message0", algorithm="ring", shape=(2, 2))),
        r"'message0' is for 2 ranks, not for levels of 2 x 2",
    ),
    "root that is not there": (
        changed(GROUPS, setting("message0", kind="broadcast", postcondition="copy", root=2)),
        r"'message0' is for ranks \(0, 1\): its root",
    ),
    "collective of pieces": (
        changed(SPARSE, setting("gather_values", reads=(Ref("values", 0, 6, ("world",)),))),
        r"'gather_values' is over 'world', and its ranks have other pieces of values",
    ),
    "collective of unequal ranges": (
        changed(SPARSE, setting("gather_values", reads=(Ref("values", 0, 4),))),
        r"reads and writes ranges of equal lengths and types",
    ),
    "two roles for a rank": (
        dataclasses.replace(SERVER, roles=(*SERVER.roles, dataclasses.replace(SERVER.roles[1], name="more"))),
        r"each of its 3 ranks \(0 to 2\) one role",
    ),
    "a rank without a role": (dataclasses.replace(PLAN, ranks=3), r"each of its 3 ranks \(0 to 2\) one role"),
    "a role that does nothing": (changed(PLAN, list.clear), r"role 'worker' has no operations"),
    "no ranks": (dataclasses.replace(PLAN, ranks=0, roles=()), r"0 ranks"),
    "send to a rank that is not there": (
        changed(SWEEP, setting("push", to=9), role=1),
        r"'push' names rank 9",
    ),
    "unknown kernel": (
        changed(PLAN, setting("update", kernel="adagrad")),
        r"unknown kernel 'adagrad' \(known: adam",
    ),
    "unknown buffer": (changed(PLAN, setting("update", writes=(Ref("weights", 0, 1),))), r"uses buffer 'weights'"),
    "out of bounds": (
        changed(PLAN, setting("update", reads=(Ref("gradient", 0, 14),))),
        r"gradient\[0:14\].* 13 ",
    ),
    "unknown dtype": (
        dataclasses.replace(PLAN, buffers=(*PLAN.buffers, Buffer("more", 1, "float12"))),
        r"unknown dtype 'float12'",
    ),
    "equal names": (changed(PLAN, setting("message1", name="message0")), r"two operations are named 'message0'"),
    "equal buffers": (dataclasses.replace(PLAN, buffers=(*PLAN.buffers, PLAN.buffers[0])), r"two buffers"),
    "equal roles": (
        dataclasses.replace(SERVER, roles=tuple(dataclasses.replace(role, name="all") for role in SERVER.roles)),
        r"two roles",
    ),
    "gap between tensors": (dataclasses.replace(PLAN, tensors=PLAN.tensors[1:]), r"without gap"),
    "reply to nobody": (
        changed(PLAN, appended(Reply(name="answer", lane="network", to="question", reads=(WHOLE,)))),
        r"reply 'answer': no receive-from-any 'question'",
    ),
    "shared add to a private buffer": (
        changed(tiny.hogwild(2), setting("push", writes=(Ref("parameter", 0, 13),), reads=(WHOLE,))),
        r"'push': shared_add to 'parameter', which is not a shared buffer",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


IN_THE_GRID = {
    "unknown kernel": ["update"],
    "send to a rank that is not there": ["push"],
}


@pytest.mark.parametrize("fault", IN_THE_GRID)
def test_the_message_ends_with_the_grid_and_marks_the_operation(fault):
    marked = marked_in_the_grid(FAULTS[fault][0])
    assert any(name in cell for name in IN_THE_GRID[fault] for cell in marked)


def test_the_grid_of_a_large_plan_stays_small_and_shows_the_rank_at_fault():
    plan = tiny.synchronous(40)
    picture = grid(plan, {(37, 8): "here"})
    assert ">>" in next(line for line in picture.splitlines() if line.startswith("rank 37"))
    assert len(picture.splitlines()) <= 18
    assert "(24 more ranks)" in picture


def test_a_repeat_that_cannot_be_spelled_out_is_refused():
    broken = changed(
        PLAN, lambda body: body.append(Repeat(name="more", count=0, body=(Local(name="x", kernel="join"),)))
    )
    with pytest.raises(Exception, match="repeat 'more'"):
        check(broken)


def test_the_grid_stays_small_whatever_operations_are_called():
    plan = changed(tiny.synchronous(8), setting("update", name="u" * 1000))
    picture = grid(plan, {(3, len(plan.roles[0].flat) - 1): "here"})
    assert f">>compute:{'u' * 49}... here<<" in picture
    assert len(picture) < 4000

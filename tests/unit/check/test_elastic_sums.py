"""Elastic exchanges that are done twice, late, with one side or with another pair are found."""

from __future__ import annotations

import dataclasses

import pytest

import methods
from gradsync.check import PlanError, check
from gradsync.plan import Buffer, Collective, Local, Ref
from plan_edits import changed, index_of, setting

SYNC = methods.planned("sync_easgd2", 3)
HOST = methods.planned("sync_easgd1", 3)
TREE = methods.planned("sync_easgd2", 3, algorithm="binary_tree")
WHOLE = methods.ELEMENTS


@pytest.mark.parametrize("role", [0, 1])
def test_a_tree_that_adds_to_what_was_summed_before_is_found(role):
    def without_a_copy(body):
        del body[index_of(body, "stage")]
        setting("reduce", after=())(body)

    check(TREE)
    with pytest.raises(PlanError):
        check(changed(TREE, without_a_copy, role=role))


def in_both(plan, edit):
    """The edit done to master and workers."""
    return changed(changed(plan, edit), edit, role=1)


def pulled_twice(body):
    again = dataclasses.replace(body[index_of(body, "pull")], name="again", after=("pull",))
    body.append(again)
    setting("broadcast", after_previous=("update", "again"))(body)


def summed_after_the_update(body):
    """The parameters are summed once they are updated."""
    reduce = body.pop(index_of(body, "reduce"))
    body.insert(index_of(body, "update") + 1, dataclasses.replace(reduce, after=("update",)))
    setting("update", after=("broadcast",))(body)
    setting("forward", after_previous=("reduce",))(body)
    setting("broadcast", after_previous=("update", "reduce"))(body)


def pulled_before_the_broadcast(body):
    """The centre that workers get has been pulled already."""
    broadcast, reduce, update, pull = body[-4:]
    body[-4:] = [
        dataclasses.replace(reduce, after=broadcast.after, after_previous=("update", "pull")),
        dataclasses.replace(pull, after=("reduce",), after_previous=("update",)),
        dataclasses.replace(broadcast, after=("pull",), after_previous=()),
        dataclasses.replace(update, after=("broadcast",)),
    ]


def broadcast_last(body):
    broadcast = body.pop(index_of(body, "broadcast"))
    setting("reduce", after=broadcast.after, after_previous=("update",))(body)
    body.insert(index_of(body, "update"), dataclasses.replace(broadcast, after=(), after_previous=()))


def of_two_terms(body):
    setting("pull", arguments={**body[-1].arguments, "terms": 2.0})(body)


def stale_worker(body):
    """A worker's parameters are summed a turn late: as they were copied before the update."""
    at = index_of(body, "reduce")
    body[at] = dataclasses.replace(body[at], reads=(Ref("stale", 0, WHOLE),))
    copy = Local(
        name="copy",
        kernel="copy",
        after=("reduce",),
        reads=(Ref("parameter", 0, WHOLE),),
        writes=(Ref("stale", 0, WHOLE),),
    )
    body.insert(index_of(body, "update"), copy)
    setting("update", after=("broadcast", "reduce", "copy"))(body)
    setting("broadcast", after_previous=("update", "copy"))(body)


def summed_everywhere(body):
    at = index_of(body, "reduce")
    body[at] = dataclasses.replace(body[at], root=1)


def without_the_pull(body):
    del body[index_of(body, "pull")]
    setting("broadcast", after_previous=("update",))(body)


def with_stale(role):
    """The plan with a buffer for parameters of the turn before; one of role `state` has something in the first turn."""
    return dataclasses.replace(SYNC, buffers=(*SYNC.buffers, Buffer("stale", WHOLE, "float64", role=role)))


FAULTS = {
    "a difference that is added twice": (
        changed(SYNC, pulled_twice),
        "'again' pulls .* with a pair of parameters and centre that the other side of the exchange never has",
    ),
    "parameters that are summed after the update": (
        in_both(SYNC, summed_after_the_update),
        "with a pair of parameters and centre that the other side of the exchange never has",
    ),
    "a centre that is sent after its update": (
        changed(changed(SYNC, pulled_before_the_broadcast), broadcast_last, role=1),
        "with a pair of parameters and centre that the other side of the exchange never has",
    ),
    "parameters of a worker that are a turn old": (
        changed(with_stale("scratch"), stale_worker, role=1),
        r"'reduce' reads stale\[0:13\], which nothing has written",
    ),
    "parameters of a worker that are a turn old, with a first value": (
        changed(with_stale("state"), stale_worker, role=1),
        "'pull' pulls the centre to parameters, element by element, and finds sum of several",
    ),
    "a sum that lacks a term": (
        changed(SYNC, of_two_terms),
        "'pull' pulls the centre to the sum of 2, and finds one of 3",
    ),
    "a sum on another rank than the centre's": (
        in_both(SYNC, summed_everywhere),
        r"'pull' reads incoming\[0:13\], which nothing has written",
    ),
    "a centre that nobody pulls": (
        changed(SYNC, without_the_pull),
        "'update' pulls .* with a pair of parameters and centre that the other side of the exchange never has",
    ),
    "a centre that a worker's replaces": (
        in_both(HOST, setting("broadcast", root=2)),
        "lost update: 'broadcast' replaces a centre of .* that rank 1's gradients have pulled by one that they have",
    ),
    "a master that is a term and isn't counted": (
        changed(HOST, of_two_terms),
        "'pull' pulls the centre to the sum of 2, and finds one of 3",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


def test_plans_in_order_pass():
    for plan in (SYNC, HOST):
        check(plan)


def test_a_sum_at_a_root_names_its_postcondition():
    wrong = changed(SYNC, setting("reduce", postcondition="sum"))
    assert isinstance(SYNC.role_of[0].flat[-3], Collective)
    with pytest.raises(PlanError, match="the postcondition of reduce is 'root_sum', not 'sum'"):
        check(wrong)

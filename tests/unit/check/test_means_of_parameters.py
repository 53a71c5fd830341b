"""Means of parameters that lack a rank, that are taken twice, late, or applied to other parameters are found."""

from __future__ import annotations

import dataclasses

import pytest

import methods
from gradsync.check import PlanError, check
from gradsync.check.few_passes import FEW_PASSES, on_few_passes
from gradsync.plan import Buffer, Collective, Local, Ref, Role
from plan_edits import appended, changed, setting, with_buffers, without

MEAN = methods.planned("local_sgd", 3)
OUTER = methods.planned("diloco", 3)
WHOLE = methods.ELEMENTS


def parted(plan, edit, rank=2):
    """The edit done to one rank alone."""
    (role,) = plan.roles
    others = tuple(each for each in role.ranks if each != rank)
    roles = (Role("others", others, role.body), Role("one", (rank,), role.body))
    return changed(dataclasses.replace(plan, roles=roles), edit, role=1)


def first_two(plan):
    """Two of three ranks average their parameters, and the third goes on by itself."""
    (role,) = plan.roles
    alone = tuple(op for op in role.body if op.name == "period")
    summed = changed(plan, setting("sum", ranks=(0, 1)))
    two = changed(summed, setting("synchronise", arguments={**role.body[-1].arguments, "terms": 2.0}))
    roles = (dataclasses.replace(two.roles[0], ranks=(0, 1)), Role("alone", (2,), alone))
    return dataclasses.replace(plan, roles=roles)


def of_terms(plan, terms):
    arguments = plan.roles[0].body[-1].arguments
    return changed(plan, setting("synchronise", arguments={**arguments, "terms": terms}))


def again(body):
    """Parameters that have been averaged are averaged once more."""
    summed, mean = body[-2:]
    body += [
        dataclasses.replace(summed, name="sum2", after=("synchronise",), after_previous=("synchronise2",)),
        dataclasses.replace(mean, name="synchronise2", after=("sum2",)),
    ]


def shorter(body):
    body[0] = dataclasses.replace(body[0], count=methods.PERIOD - 1)


def stale_centre(body):
    """The outer step changes a copy of the centre that is a turn old."""
    outer = body[-1]
    body[-1] = dataclasses.replace(
        outer, writes=tuple(ref._replace(buffer="old") if ref.buffer == "centre" else ref for ref in outer.writes)
    )
    copy = Local(
        name="copy", kernel="copy", after=("sum",), reads=(Ref("centre", 0, WHOLE),), writes=(Ref("old", 0, WHOLE),)
    )
    body.insert(-1, copy)


def never_taken(body):
    """Ranks go on with the mean, and the outer step follows in the buffer of the centre alone."""
    outer = body[-1]
    kept = tuple(ref for ref in outer.writes if ref.buffer != "parameter")
    body[-1] = dataclasses.replace(outer, writes=(Ref("other", 0, WHOLE), *kept))
    mean = Local(
        name="mean",
        kernel="average",
        arguments={"terms": 3.0},
        after=("sum",),
        reads=outer.reads,
        writes=(Ref("parameter", 0, WHOLE),),
    )
    body.append(mean)


def before_the_last_step(body):
    """Parameters are summed beside the last step of the period."""
    more = (
        dataclasses.replace(op, name=f"{op.name}.last", after=tuple(f"{name}.last" for name in op.after))
        for op in body[0].body
    )
    body[0] = dataclasses.replace(body[0], count=methods.PERIOD - 1)
    body[1:1] = list(more)


FAULTS = {
    "a rank that is left out": (first_two(MEAN), "without all steps of rank 2"),
    "a rank that is left out of the outer step": (first_two(OUTER), "without all steps of rank 2"),
    "a weight that is not one over the ranks": (of_terms(MEAN, 2.0), "divides by 2 a sum of 3 parameters"),
    "a weight of an outer step": (of_terms(OUTER, 4.0), "divides by 4 a sum of 3 parameters"),
    "a mean that is taken twice": (changed(MEAN, again), "that a rank has not changed since all had the same"),
    "an outer step that is made twice": (changed(OUTER, again), "that a rank has not changed since all had the same"),
    "a rank that makes fewer steps": (parted(MEAN, shorter), "without all steps of rank 2"),
    "a rank that keeps its own parameters": (
        parted(
            with_buffers(MEAN, Buffer("other", WHOLE, "float64", role="parameter")),
            setting("synchronise", writes=(Ref("other", 0, WHOLE),)),
        ),
        "2 buffers of role parameter instead of one",
    ),
    "a rank that does not go on with the mean": (
        parted(
            with_buffers(MEAN, Buffer("other", WHOLE, "float64")),
            setting("synchronise", writes=(Ref("other", 0, WHOLE),)),
        ),
        "began from different ones: ranks have drifted apart",
    ),
    "an outer step of a centre that is a turn old": (
        changed(with_buffers(OUTER, Buffer("old", WHOLE, "float64", role="centre")), stale_centre),
        "lost update: 'copy' replaces a centre of .* that rank 0's gradients have pulled",
    ),
    "an outer step that ranks do not go on from": (
        changed(with_buffers(OUTER, Buffer("other", WHOLE, "float64")), never_taken),
        "to another version than they began from",
    ),
    "parameters that are summed before the last step": (
        changed(changed(MEAN, before_the_last_step), setting("sum", after=("update",))),
        "race on parameter.*: 'update.last' and 'sum'",
    ),
    "a sum of gradients in the place of parameters": (
        changed(MEAN, setting("sum", reads=(Ref("gradient", 0, WHOLE),))),
        "takes the sum of all ranks' parameters .*, and finds gradient",
    ),
    "a sum that is not divided": (
        changed(MEAN, setting("synchronise", kernel="copy", arguments={})),
        "puts sum of parameters in parameter",
    ),
    "a sum that is divided by nobody who knows what it is": (
        changed(MEAN, setting("synchronise", kernel="cast", arguments={"scale": 1 / 3})),
        "'synchronise' puts sum of several in parameter",
    ),
    "no synchronisation": (
        changed(changed(MEAN, without("synchronise")), setting("sum", after_previous=())),
        r"race on parameter.*: 'sum' and 'update#0' \(of the next turn\)",
    ),
    "ranks that never synchronise": (
        changed(changed(MEAN, without("synchronise")), without("sum")),
        r"ranks train apart: the parameters of 'layer4' to 'layer1' .* never have .* rank 1 found",
    ),
    "outer momentum of another optimizer": (
        changed(
            OUTER, setting("synchronise", writes=(*OUTER.roles[0].body[-1].writes[:2], Ref("first_moment", 0, WHOLE)))
        ),
        "takes the outer momentum of another version",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lars", "lamb"])
@pytest.mark.parametrize("method", ["local_sgd", "diloco"])
def test_plans_in_order_pass(method, optimizer, ranks):
    check(methods.planned(method, ranks, optimizer))


def test_a_long_period_is_followed_in_a_few_passes():
    long = methods.planned("diloco", 2, period=300)
    few = on_few_passes(long)
    assert few.passes == FEW_PASSES < long.passes
    assert on_few_passes(MEAN) == MEAN
    named = changed(long, setting("sum", after=("update#200",)))
    assert on_few_passes(named) == named
    parts = parted(long, appended(Collective(name="more", lane="network", reads=(), writes=())))
    assert on_few_passes(parts) == parts
    check(long)

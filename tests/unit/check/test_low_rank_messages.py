"""Factors that are not summed, summed late, mixed up or not taken from the residual are found."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from gradsync.check import PlanError, check
from gradsync.plan import Local, Plan, Ref
from low_rank_plans import low_rank
from plan_edits import changed, index_of, setting, without
from refusals import marked_in_the_grid

WHOLE = low_rank(2)
LAYERS = low_rank(2, "wfbp")
LOST = low_rank(2, feedback=False)
PLANS = {
    "one message": WHOLE,
    "layers": LAYERS,
    "without feedback": LOST,
    "by_message": low_rank(2, "wfbp", update="by_message"),
    "rings": low_rank(3, "wfbp", collective="ring"),
    "many ranks": low_rank(32),
}


def op(plan: Plan, name: str) -> Any:
    return next(each for each in plan.roles[0].flat if each.name == name)


def moved_behind(name: str, other: str):
    def edit(body):
        moved = body.pop(index_of(body, name))
        body.insert(index_of(body, other) + 1, moved)

    return edit


def added_behind(name: str, new: Any):
    return lambda body: body.insert(index_of(body, name) + 1, new)


def writes_without_residual(plan: Plan, name: str) -> tuple[Ref, ...]:
    return tuple(ref for ref in op(plan, name).writes if ref.buffer != "residual")


def swapped_reads(plan: Plan, name: str) -> dict[str, tuple[Ref, ...]]:
    return {"reads": op(plan, name).reads[::-1]}


AGAIN = dataclasses.replace(op(WHOLE, "sum_left0"), name="again")
FAULTS = {
    "P is never summed": (
        changed(WHOLE, without("sum_left0")),
        r"missing gradient: 'layer5' reaches 'right0' without the gradients of rank\(s\) 1",
    ),
    "P is used before it is summed": (
        changed(WHOLE, moved_behind("right0", "left0")),
        r"missing gradient: 'layer5' reaches 'right0' without the gradients of rank\(s\) 1",
    ),
    "P is summed twice": (changed(WHOLE, added_behind("sum_left0", AGAIN)), r"sums 'layer4' a second time"),
    "Q is never summed": (
        changed(WHOLE, without("sum_right0")),
        r"missing gradient: 'layer5' reaches 'decode0' without the gradients of rank\(s\) 1",
    ),
    "Q is summed after it is decoded": (
        changed(WHOLE, moved_behind("sum_right0", "decode0")),
        r"missing gradient: 'layer5' reaches 'decode0' without the gradients of rank\(s\) 1",
    ),
    "columns of P do not become orthonormal": (
        changed(WHOLE, without("right0")),
        r"'decode0' decodes one orthonormal factor, and finds left factor",
    ),
    "what was sent is not taken from the residual": (
        changed(WHOLE, setting("decode0", writes=writes_without_residual(WHOLE, "decode0"))),
        r"'left0' adds the residual of the same gradients to them, and finds matrix that is being sent",
    ),
    "the residual is not added": (
        changed(WHOLE, setting("left0", writes=writes_without_residual(WHOLE, "left0"))),
        r"'right0' multiplies one matrix that is being sent or gradient, and finds residual",
    ),
    "a residual that nothing was added to": (
        changed(LOST, setting("decode0", writes=op(WHOLE, "decode0").writes)),
        r"uses buffer 'residual', which the plan does not have",
    ),
    "Q of the gradient alone": (
        changed(WHOLE, setting("right0", reads=op(LOST, "right0").reads)),
        r"'right0' takes factors of another matrix, or of another message",
    ),
    "the mean of another number of ranks": (
        changed(WHOLE, setting("decode0", arguments={"terms": 3.0})),
        r"'decode0' divides by 3 a sum over 2 ranks",
    ),
    "factors of other matrices": (
        changed(
            LAYERS,
            setting("decode0", reads=op(LAYERS, "decode2").reads),
        ),
        r"'decode0': kernel 'powersgd_decode' has factors of 3 and 5 elements, of no matrix of 20",
    ),
    "Q is cleared": (
        changed(
            WHOLE,
            added_behind("decode0", Local(name="clear", lane="network", kernel="fill", writes=(Ref("right", 0, 13),))),
        ),
        r"'left0' multiplies by one state, and finds constant",
    ),
    "the gradient is left from the turn before": (
        changed(WHOLE, without("decode0")),
        r"decode0",
    ),
    "what travels whole stays": (
        changed(WHOLE, without("unpack0:layer4")),
        r"missing gradient: 'layer4' reaches 'update' without",
    ),
    "factors of a part of a tensor": (
        changed(WHOLE, setting("left0", reads=(Ref("gradient", 1, 21), *op(WHOLE, "left0").reads[1:]))),
        r"'left0': kernel 'powersgd_left' works on whole tensors: gradient\[1:21\] is none",
    ),
    "a factor that does not last": (
        dataclasses.replace(
            WHOLE,
            buffers=tuple(
                dataclasses.replace(each, role="scratch") if each.name == "right" else each for each in WHOLE.buffers
            ),
        ),
        r"'left0': kernel 'powersgd_left' takes a factor that lasts from turn to turn, in a buffer of role state",
    ),
    "a residual elsewhere": (
        changed(
            WHOLE,
            setting(
                "left0",
                writes=tuple(
                    ref._replace(start=30, stop=50) if ref == Ref("residual", 0, 20) else ref
                    for ref in op(WHOLE, "left0").writes
                ),
            ),
        ),
        r"'left0': kernel 'powersgd_left' keeps what it doesn't send of a tensor in the residual of that tensor",
    ),
    "drawn from another place": (
        changed(WHOLE, setting("left0", arguments={"first": 5.0})),
        r"'left0': kernel 'powersgd_left' draws factors from 5 on, and one begins at 0",
    ),
    "an update that requires all elements": (
        changed(WHOLE, setting("update", requires="sum")),
        r"missing gradient: .* reaches 'update' without 'sum'",
    ),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_in_order_pass(name):
    check(PLANS[name])
    assert Plan.from_json(PLANS[name].to_json()) == PLANS[name]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)
    assert marked_in_the_grid(plan)


@pytest.mark.parametrize("name", ["one message", "layers", "without feedback", "by_message"])
def test_no_operation_of_a_message_can_be_left_out(name):
    plan = PLANS[name]
    for each in plan.roles[0].flat:
        if each.verb in ("collective", "local"):
            with pytest.raises(PlanError):
                check(changed(plan, without(each.name)))

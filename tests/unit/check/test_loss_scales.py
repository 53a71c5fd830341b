"""Loss scales that an update ignores, that move early or never, and ranks that skip steps alone, are found."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from changed_plans import bases, judge, loss_scales
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.configuration.scheme import Scheme
from gradsync.plan import Buffer, Local, Plan, Ref
from plan_edits import changed, index_of, setting, with_buffers, without
from tiny_workloads import workload

PLAN = bases.scheme("pipelined", 2, loss_scaling=True)
MESSAGES = bases.scheme("priority", 2, loss_scaling=True, clip_norm=0.5)
NORM, SCALER = Ref("norm", 0, 1), Ref("scaler", 0, 3)
SCALED = {name: plan for name, plan in bases.every().items() if "scaler" in plan.buffer}
SEEDS = 3


def named(plan: Plan, name: str) -> Any:
    return next(op for op in plan.roles[0].flat if op.name == name)


def updates(plan: Plan) -> list[str]:
    return [op.name for op in plan.roles[0].flat if isinstance(op, Local) and op.kernel.endswith("_unscaled")]


def ignoring(plan: Plan) -> Plan:
    """The last update clips, and takes no loss scale out."""
    update = named(plan, updates(plan)[-1])
    arguments = {**update.arguments, "clip": 0.5}
    return changed(plan, setting(update.name, kernel="sgd", reads=update.reads[:2], arguments=arguments))


def moved_before_the_last_update(plan: Plan) -> Plan:
    """On the lane of the updates, in order: there is no race."""
    *_, before, last = updates(plan)

    def edit(body: list[Any]) -> None:
        op = body.pop(index_of(body, "scaler"))
        body.insert(index_of(body, last), dataclasses.replace(op, after=(before,)))

    return changed(plan, edit)


def decided_alone(plan: Plan) -> Plan:
    """Each rank has the norm of its own pieces."""
    own = named(plan, "squares").after

    def edit(body: list[Any]) -> None:
        without("squares")(body)
        setting("norm", after=own)(body)

    return changed(plan, edit)


def decided_by_message(plan: Plan) -> Plan:
    """The first update is skipped by the norm of its own message."""
    update = named(plan, updates(plan)[0])
    own = Ref("own", 0, 1)
    norm = Local(name="own", lane=update.lane, kernel="norm", after=update.after, reads=update.reads[:1], writes=(own,))

    def edit(body: list[Any]) -> None:
        body.insert(index_of(body, update.name), norm)
        setting(update.name, reads=(update.reads[0], own, SCALER), after=("own",))(body)

    return changed(with_buffers(plan, Buffer("own", 1, "float64")), edit)


def moved_by_own_gradients() -> Plan:
    """The loss scale moves by the norm of what a rank has found, before it is summed."""
    load = workload([40, 24], [1.0, 2.0], forward=1.0, update=0.1, dtype="float64")
    plan = schemes.plan(Scheme(name="single", update="by_message"), load, bases.COST, 2, loss_scaling=True)
    message, own = named(plan, "message0"), Ref("own", 0, 1)

    def edit(body: list[Any]) -> None:
        norm = Local(name="own", kernel="norm", after=message.after, reads=message.reads, writes=(own,))
        body.insert(index_of(body, "message0"), norm)
        setting("message0", after=("own",))(body)
        setting("scaler", reads=(own,), after=(*updates(plan), "own"))(body)

    return changed(with_buffers(plan, Buffer("own", 1, "float64")), edit)


def still(plan: Plan) -> Plan:
    def edit(body: list[Any]) -> None:
        without("scaler")(body)
        body[0] = dataclasses.replace(body[0], after_previous=(*updates(plan), *body[0].after_previous[1:]))

    return changed(plan, edit)


def unawaited(plan: Plan) -> Plan:
    waits = named(plan, plan.roles[0].flat[0].name).after_previous
    return changed(plan, setting(plan.roles[0].flat[0].name, after_previous=(*updates(plan), *waits[1:])))


FAULTS = {
    "an update that ignores it": (ignoring(PLAN), r"under another loss scale .* only kernels that end with _scaled"),
    "it moves before the last update has read it": (
        moved_before_the_last_update(PLAN),
        r"under another loss scale than it takes out of them: its scaler has changed",
    ),
    "it moves beside the updates": (
        changed(PLAN, setting("scaler", lane="other", after=("norm",))),
        r"race on scaler\[0:...\]: .*'scaler'.* neither waits for the other",
    ),
    "it moves twice": (
        changed(
            PLAN,
            lambda body: body.insert(
                index_of(body, "scaler") + 1, dataclasses.replace(named(PLAN, "scaler"), name="again")
            ),
        ),
        r"race on scaler|its scaler has changed",
    ),
    "it never moves": (still(PLAN), r"takes a loss scale that never moves"),
    "a forward that doesn't wait until it has moved": (unawaited(PLAN), r"race on scaler\[0:...\]: 'scaler' and"),
    "ranks that decide by what they have themselves": (
        decided_alone(PLAN),
        r"decides by the norm of something else than the gradients of all layers",
    ),
    "a message that is skipped by itself": (
        decided_by_message(MESSAGES),
        r"decides by the norm of something else than the gradients of all layers",
    ),
    "it moves by a rank's own gradients": (
        moved_by_own_gradients(),
        r"missing gradient: .* reaches 'scaler' without the gradients of rank\(s\) 1",
    ),
    "a scaler that is none": (
        changed(
            with_buffers(PLAN, Buffer("other", 3)),
            setting("scaler", writes=(Ref("other", 0, 3),)),
        ),
        r"kernel 'scaler' needs a buffer of role scaler, not 'other', a scratch",
    ),
    "no scaler": (
        changed(PLAN, setting(updates(PLAN)[0], reads=named(PLAN, updates(PLAN)[0]).reads[:2])),
        r"kernel 'sgd_unscaled' reads gradient, norm and scaler, not 2 range\(s\)",
    ),
    "squares for a norm": (
        changed(PLAN, setting("scaler", reads=(Ref("squares", 0, 1),))),
        r"'scaler' decides by a norm and finds sum of squares",
    ),
    "gradients that are kept under several": (
        with_buffers(PLAN, Buffer("residual", PLAN.elements, "float64", role="residual")),
        r"buffer 'residual' keeps gradients, and 'scaler' a loss scale",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault):
    plan, message = FAULTS[fault]
    with pytest.raises(PlanError, match=message):
        check(plan)


@pytest.mark.parametrize("plan", [PLAN, MESSAGES])
def test_the_plans_themselves_are_in_order(plan):
    check(plan)


@pytest.mark.parametrize("how", loss_scales.WITH)
def test_every_plan_is_refused_with_such_a_fault_or_does_the_same(how):
    refused = 0
    for name, plan in SCALED.items():
        for seed in range(SEEDS):
            verdict = judge.judged(name, plan, loss_scales.faulty(plan, how, random.Random(seed)), [])
            assert verdict.kind != judge.MISSED, (name, seed, verdict.why)
            refused += verdict.kind == judge.REFUSED
    assert refused >= len(SCALED)

"""Every method of its own is planned, checked, written, timed; and refused with what it can't have."""

from __future__ import annotations

import pytest

import methods
from gradsync import optimizers, updates
from gradsync.check import check
from gradsync.costs import alpha_beta
from gradsync.engine.bounds import hard_bound_seconds
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import Plan, Ready
from gradsync.schedules import Message
from gradsync.transforms.step import Step


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("method", updates.methods())
def test_it_passes_the_check_survives_json_and_is_timed(method, workers):
    ranks = workers + updates.masters(method)
    plan = methods.planned(method, ranks)
    check(plan)
    assert Plan.from_json(plan.to_json()) == plan
    computing = [rank for rank in range(ranks) if any(isinstance(op, Ready) for op in plan.role_of[rank].flat)]
    assert computing == list(range(ranks - workers, ranks))
    trace = simulate(plan, methods.load(update=0.5), alpha_beta.network(ranks, 0.5, 0.01))
    seconds = trace.iteration_seconds(plan.pace)
    assert seconds >= hard_bound_seconds(plan, methods.load(update=0.5)) - 1e-9 >= 12.0 - 1e-9


@pytest.mark.parametrize("method", updates.methods())
@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Step(wire="float16"), "a narrow wire"),
        (Step(loss_scaling=True), "a loss scale"),
        (Step(accumulate=2), "micro-batches"),
        (Step(clip_norm=1.0), "clipping"),
    ],
)
def test_what_belongs_to_the_mean_gradient_is_refused(method, step, text):
    with pytest.raises(InputError, match=f"update {method!r} applies no mean gradient of all ranks, which {text}"):
        updates.plan(method, method, methods.load(), methods.WHOLE, 3, step=step)


@pytest.mark.parametrize("method", updates.methods())
def test_several_messages_a_described_collective_and_a_rank_too_few_are_refused(method):
    planner = updates.get(method)
    with pytest.raises(InputError, match="all layers packed: schedule single"):
        planner(method, methods.load(), (Message(0, 1), Message(2, 3)), 3)
    with pytest.raises(InputError, match=r"collective 'ring' (sums gradients|has no reduce)"):
        planner(method, methods.load(), methods.WHOLE, 3, algorithm="ring")
    with pytest.raises(InputError, match="at least"):
        planner(method, methods.load(), methods.WHOLE, updates.masters(method))


@pytest.mark.parametrize("method", [name for name in updates.methods() if not updates.steps(name)])
def test_a_method_takes_the_learning_rate_of_sgd_alone(method):
    adam = optimizers.get("adam")
    decayed = optimizers.get("sgd", weight_decay=0.1)
    for optimizer in (adam, decayed):
        with pytest.raises(InputError, match="optimizer sgd without weight decay"):
            updates.get(method)(method, methods.load(), methods.WHOLE, 3, optimizer=optimizer)
    plain, moving = (optimizers.get("sgd", lr=0.1, momentum=momentum) for momentum in (0.0, 0.9))
    plans = [
        updates.get(method)(method, methods.load(), methods.WHOLE, 3, optimizer=optimizer)
        for optimizer in (plain, moving)
    ]
    assert plans[0] == plans[1]


def test_updates_of_the_mean_gradient_have_no_options():
    for name in updates.names():
        assert updates.options(name) == {}
    with pytest.raises(InputError, match="update 'ssgd' has no option 'rho'; it has: none"):
        updates.refuse_options("ssgd", {"rho": 0.5})

"""Transforms of plans: what each adds to plans of every kind, in any order, and which plans it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

import tiny_plans as tiny
from changed_plans import bases, judge
from gradsync.check import check
from gradsync.engine.oracle import evaluate
from gradsync.errors import InputError
from gradsync.plan import Buffer, Collective, Local, Need, Plan, RecvAny, Ref, SharedAdd
from gradsync.transforms import accumulation, clipping, loss_scaling, narrow_wire, statistics
from gradsync.transforms._edits import rescaled
from gradsync.transforms.step import Step

MICRO_BATCHES = 3
TRANSFORMS: dict[str, Callable[[Plan], Plan]] = {
    "accumulation": lambda plan: accumulation.accumulate(plan, MICRO_BATCHES),
    "narrow wire": lambda plan: narrow_wire.narrow(plan, "float32"),
    "statistics": lambda plan: statistics.broadcast(plan, 4),
    "loss scaling": loss_scaling.scale_loss,
    "clipping": lambda plan: clipping.clip(plan, 1e9),  # longer than any gradient of these plans
}
PLANS = bases.every()
ACCEPTED = {  # of plans that stand for their kind
    "wfbp": set(TRANSFORMS),
    "striped": set(TRANSFORMS),
    "repeated": set(TRANSFORMS),
    "uneven roles 2": set(TRANSFORMS),
    "in groups": set(TRANSFORMS),
    "sparse 2": {"accumulation", "statistics", "clipping"},
    "sparse without feedback": set(TRANSFORMS) - {"narrow wire"},
    "sparse between nodes": {"accumulation", "statistics", "clipping"},
    "two levels": set(TRANSFORMS) - {"narrow wire"},
    "sharded 2": set(TRANSFORMS),
    "shards 3": set(TRANSFORMS),
    "update between gradients": set(TRANSFORMS),
    "adam": set(TRANSFORMS),
    "synchronous server 3": {"accumulation", "clipping"},
    "hogwild": {"accumulation", "statistics"},
    "easgd 2": set(),
    "exchange": set(),
}
TURNS = 3


def transformed(plan: Plan, *names: str) -> Plan | None:
    """The plan after these transforms, in that order; None if one of them refuses it."""
    for name in names:
        try:
            plan = TRANSFORMS[name](plan)
        except InputError:
            return None
    return plan


def sorted_buffers(plan: Plan | None) -> Plan | None:
    if plan is None:
        return None
    return dataclasses.replace(plan, buffers=tuple(sorted(plan.buffers, key=lambda buffer: buffer.name)))


def named(plan: Plan) -> dict[str, object]:
    return {op.name: op for role in plan.roles for op in role.flat}


@pytest.mark.parametrize("base", ACCEPTED)
def test_a_plan_of_each_kind_gets_what_makes_sense_for_it(base):
    assert {name for name in TRANSFORMS if transformed(PLANS[base], name)} == ACCEPTED[base]


@pytest.mark.parametrize("base", PLANS)
def test_what_a_transform_gives_passes_the_check(base):
    for name in TRANSFORMS:
        plan = transformed(PLANS[base], name)
        if plan is not None:
            check(plan)
            assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize("base", PLANS)
def test_two_transforms_give_the_same_in_either_order(base):
    for first, second in combinations(TRANSFORMS, 2):
        one, other = transformed(PLANS[base], first, second), transformed(PLANS[base], second, first)
        assert sorted_buffers(one) == sorted_buffers(other), (first, second)


@pytest.mark.parametrize("base", [base for base, names in ACCEPTED.items() if len(names) > 1])
def test_all_that_a_plan_accepts_together_pass_the_check(base):
    names = [name for name in TRANSFORMS if name in ACCEPTED[base]]
    plan = transformed(PLANS[base], *names)
    assert plan is not None
    check(plan)
    assert sorted_buffers(transformed(PLANS[base], *reversed(names))) == sorted_buffers(plan)


def depends_on_order(plan: Plan) -> bool:
    """Values depend on who comes first."""
    return any(isinstance(op, RecvAny | SharedAdd) for role in plan.roles for op in role.flat)


@pytest.mark.parametrize("base", [base for base, plan in PLANS.items() if not depends_on_order(plan)])
def test_a_transform_changes_no_value_but_by_rounding(base):
    """Micro-batches of equal gradients, a wide wire, a loss scale of 1 and a norm that is never reached."""
    plan = PLANS[base]
    expected = evaluate(plan, TURNS, tiny.pull, judge.first(plan), dtype="float64")
    for name in TRANSFORMS:
        changed = transformed(plan, name)
        if changed is None:
            continue
        passes = MICRO_BATCHES if name == "accumulation" else 1

        def gradient(rank: int, number: int, parameter: np.ndarray, passes: int = passes) -> np.ndarray:
            return tiny.pull(rank, number // passes, parameter)

        begin = judge.first(changed)
        if name == "loss scaling":
            begin["scaler"] = np.array([1.0, 0.0, 0.0])
        ended = evaluate(changed, TURNS, gradient, begin, dtype="float64")
        for ours, theirs in zip(ended, expected, strict=True):
            for buffer in plan.buffers:
                if buffer.role in ("parameter", "momentum", "centre"):
                    np.testing.assert_allclose(ours[buffer.name], theirs[buffer.name], rtol=1e-12, atol=1e-12)


# Accumulation


def test_earlier_micro_batches_come_before_the_forward_of_the_last_and_wait_in_its_place():
    plan = accumulation.accumulate(tiny.sharded(2), 3)
    needs = [op for op in plan.roles[0].body if isinstance(op, Need)]
    layers = [f"forward:layer{number}" for number in (1, 2, 3, 4)]
    assert [op.name for op in needs] == [f"{name}{suffix}" for suffix in (".0", ".1", "") for name in layers]
    assert [bool(op.after_previous) for op in needs] == [True] * 4 + [False] * 8
    assert plan.passes == 3


def test_one_micro_batch_is_the_plan_itself():
    plan = tiny.synchronous(2)
    assert accumulation.accumulate(plan, 1) is plan


@pytest.mark.parametrize("count", [0, -1])
def test_less_than_one_micro_batch_is_refused(count):
    with pytest.raises(InputError, match=f"accumulate {count}: a step has at least 1 micro-batch"):
        accumulation.accumulate(tiny.synchronous(2), count)


def test_a_kernel_that_takes_no_mean_accumulates_nothing():
    with pytest.raises(InputError, match="'update' applies them by kernel 'elastic_worker', which has no scale"):
        accumulation.accumulate(tiny.easgd_round_robin(2), 2)


def test_what_accumulates_already_is_refused():
    plan = accumulation.accumulate(tiny.synchronous(2), 2)
    with pytest.raises(InputError, match="steps of role 'worker' have several micro-batches already"):
        accumulation.accumulate(plan, 2)


# The wire


def test_a_message_waits_for_others_to_have_travelled_and_all_else_for_the_wide_gradient():
    plan = PLANS["update between gradients"]
    body = tuple(
        dataclasses.replace(op, after=(*op.after, "message0")) if op.name == "message1" else op
        for op in plan.roles[0].body
    )
    operations = named(
        narrow_wire.narrow(dataclasses.replace(plan, roles=(dataclasses.replace(plan.roles[0], body=body),)), "float16")
    )
    assert operations["narrow1"].after == ("ready:layer3", "message0")
    assert operations["update:layer4"].after == ("widen0",)


def test_of_a_scattered_sum_each_rank_widens_its_own_piece():
    operations = named(narrow_wire.narrow(tiny.sharded(2), "float16"))
    narrowed, message, widened = (operations[f"{verb}scatter:layer4"] for verb in ("narrow:", "", "widen:"))
    assert (narrowed.reads, narrowed.writes) == ((Ref("gradient", 0, 5),), (Ref("wire", 0, 5),))
    assert (message.reads, message.writes, message.after) == (narrowed.writes, narrowed.writes, ())
    assert (widened.reads, widened.writes) == ((Ref("wire", 0, 5, ("world",)),), (Ref("gradient", 0, 5, ("world",)),))
    assert operations["update:layer4"].after == ("widen:scatter:layer4",)


def test_messages_of_a_group_are_divided_by_its_ranks():
    operations = named(narrow_wire.narrow(tiny.in_groups(2, 2), "float32"))
    assert operations["narrow0"].arguments == {"scale": 0.5}
    assert operations["update"].arguments["scale"] == 1.0


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (tiny.two_level(), "gradients of 'message0' travel in another message too"),
        (tiny.async_server(2), "needs sums of gradients over one number of ranks; it has no such message"),
        (bases.exchange(), "needs a plan with gradients"),
        (narrow_wire.narrow(tiny.synchronous(2), "float16"), "needs a buffer 'wire', which the plan has already"),
    ],
)
def test_what_does_not_travel_in_one_sum_is_not_narrowed(plan, problem):
    with pytest.raises(InputError, match=problem):
        narrow_wire.narrow(plan, "float32")


def test_gradients_are_narrowed_to_floats_from_a_known_type_alone():
    plan = tiny.synchronous(2)
    for wire in ("int32", "uint8", "half"):
        with pytest.raises(InputError, match=f"wire '{wire}': gradients travel in one of the types float64"):
            narrow_wire.narrow(plan, wire)
    assert narrow_wire.narrow(plan, "float64") is plan
    unknown = dataclasses.replace(plan, buffers=tuple(dataclasses.replace(b, dtype="uint8") for b in plan.buffers))
    with pytest.raises(InputError, match="needs gradients of a known type, not bytes"):
        narrow_wire.narrow(unknown, "float16")


def test_sums_over_several_numbers_of_ranks_are_not_narrowed():
    plan = tiny.synchronous(4)
    body = tuple(dataclasses.replace(op, ranks=(0, 1)) if op.name == "message0" else op for op in plan.roles[0].body)
    plan = dataclasses.replace(plan, roles=(dataclasses.replace(plan.roles[0], body=body),))
    with pytest.raises(InputError, match="over one number of ranks; it has sums over 2, 4"):
        narrow_wire.narrow(plan, "float32")


def test_other_messages_of_gradients_are_no_sums():
    plan = tiny.synchronous(2)
    body = tuple(
        dataclasses.replace(op, kind="broadcast", postcondition="copy") if isinstance(op, Collective) else op
        for op in plan.roles[0].body
    )
    plan = dataclasses.replace(plan, roles=(dataclasses.replace(plan.roles[0], body=body),))
    with pytest.raises(InputError, match="'message0' is no sum of one range of gradients"):
        narrow_wire.narrow(plan, "float32")


# Statistics


def test_statistics_travel_after_the_last_forward_on_the_lane_of_the_first_message():
    plan = statistics.broadcast(accumulation.accumulate(tiny.two_lanes(2), 2), 6)
    operations = named(plan)
    assert operations["statistics"].lane == "lane0"
    assert operations["statistics"].after == ("forward",)
    assert operations["forward0"].after_previous == ("update", "statistics")
    assert operations["forward"].after_previous == ()
    whole = (Ref("statistics", 0, 6),)
    assert operations["forward0"].writes == operations["forward"].writes == operations["statistics"].writes == whole


def test_the_first_and_the_last_layer_change_the_statistics():
    operations = named(statistics.broadcast(tiny.sharded(2), 6))
    assert [name for name, op in operations.items() if Ref("statistics", 0, 6) in op.writes] == [
        "forward:layer1",
        "forward:layer4",
        "statistics",
    ]


def test_no_statistics_and_ranks_that_compute_nothing_are_refused():
    with pytest.raises(InputError, match="needs at least 1 element, not 0"):
        statistics.broadcast(tiny.synchronous(2), 0)
    with pytest.raises(InputError, match="is a message of all ranks, of which some compute nothing"):
        statistics.broadcast(tiny.easgd_round_robin(2), 6)


# Loss scaling and clipping


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (tiny.dealt_ratios(2), "no kernel 'lars_unscaled' for the update 'update:layer2'"),
        (tiny.hogwild(2), "loss scaling needs one local operation that applies all gradients; .* has: push"),
        (tiny.async_server(2), "loss scaling: role 'server' computes gradients or applies them, not both"),
        (tiny.easgd_round_robin(2), "no kernel 'elastic_worker_unscaled' for the update 'update'"),
        (bases.exchange(), "loss scaling needs a plan that computes gradients"),
        (loss_scaling.scale_loss(tiny.synchronous(2)), "needs a buffer 'scaler', which the plan has already"),
    ],
)
def test_who_cannot_take_a_loss_scale_out_is_refused(plan, problem):
    with pytest.raises(InputError, match=problem):
        loss_scaling.scale_loss(plan)


@pytest.mark.parametrize(
    ("plan", "problem"),
    [
        (tiny.dealt_ratios(2), "kernel 'lars' of 'update:layer2' can't clip"),
        (tiny.hogwild(2), "clipping needs one local operation that applies all gradients; .* has: push"),
        (tiny.easgd_round_robin(2), "kernel 'elastic_worker' of 'update' can't clip"),
        (bases.exchange(), "clipping needs an operation that applies gradients"),
        (clipping.clip(tiny.synchronous(2), 1.0), "needs a buffer 'norm', which the plan has already"),
    ],
)
def test_what_has_no_norm_of_all_gradients_is_not_clipped(plan, problem):
    with pytest.raises(InputError, match=problem):
        clipping.clip(plan, 1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, float("inf"), float("nan")])
def test_a_norm_that_clips_nothing_or_all_is_refused(norm):
    with pytest.raises(InputError, match=f"clip_norm {norm}: must be positive and finite; leave it out"):
        clipping.clip(tiny.synchronous(2), norm)


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("base", ["sharded 2", "adam"])
def test_a_loss_scale_moves_after_all_updates_have_read_it_and_before_the_next_forward(base, clipped):
    plan = loss_scaling.scale_loss(clipping.clip(PLANS[base], 2.0) if clipped else PLANS[base])
    free, body = PLANS[base], plan.roles[0].flat
    names = [op.name for op in free.roles[0].flat if isinstance(op, Local)]
    norm, scaler = Ref("norm", 0, 1), Ref("scaler", 0, 3)
    for name in names:
        update, before = named(plan)[name], named(free)[name]
        assert update.kernel == f"{before.kernel}_unscaled"
        assert update.reads == (*before.reads, norm, scaler)
        assert update.after[-1] == "norm"
        assert update.arguments == before.arguments | ({"clip": 2.0} if clipped else {})
    moved = named(plan)["scaler"]
    assert (moved.kernel, moved.reads, moved.writes, moved.after) == ("scaler", (norm,), (scaler,), (names[-1],))
    assert [op.name for op in body if "scaler" in op.after_previous] == [body[0].name]
    with pytest.raises(InputError, match=r"clipping needs a buffer '(squares|norm)', which the plan has already"):
        clipping.clip(clipping.clip(plan, 2.0) if not clipped else plan, 2.0)


def test_the_norm_is_of_what_the_update_applies_and_waits_as_it_did():
    plan = tiny.synchronous(2)
    update, operations = plan.roles[0].body[-1], named(clipping.clip(plan, 2.0))
    norm, clipped = operations["norm"], operations["update"]
    assert (norm.after, norm.reads, norm.requires) == (update.after, update.reads, update.requires)
    assert (clipped.after, clipped.reads) == (("norm",), (*update.reads, Ref("norm", 0, 1)))
    assert clipped.arguments == {**update.arguments, "clip": 2.0}


# A step


def test_a_step_adds_what_it_names_and_nothing_else():
    plan = tiny.synchronous(2)
    assert Step().added_to(plan, 0) is plan
    assert Step(statistics=False).added_to(plan, 6) is plan
    assert Step().added_to(plan, 6) == statistics.broadcast(plan, 6)
    every = Step(wire="float32", loss_scaling=True, accumulate=MICRO_BATCHES, clip_norm=1e9)
    assert every.added_to(plan, 4) == transformed(plan, *TRANSFORMS)


def test_scales_are_rounded_once():
    plan = tiny.synchronous(2)
    update = plan.roles[0].body[-1]
    assert isinstance(update, Local)
    for ranks in range(1, 400):
        op = dataclasses.replace(update, arguments={"lr": 0.1, "scale": 1.0 / ranks})
        assert rescaled(plan, op, Fraction(ranks), "a test").arguments["scale"] == 1.0
        for count in (3, 7):
            assert rescaled(plan, op, Fraction(1, count), "a test").arguments["scale"] == 1.0 / (ranks * count)
    for scale in (0.3, 2**-0.5, 1e-18, 3.0, -0.125):
        op = dataclasses.replace(update, arguments={"lr": 0.1, "scale": scale})
        assert rescaled(plan, op, Fraction(2), "a test").arguments["scale"] == 2 * scale


def test_a_scale_that_is_left_out_counts_as_one():
    plan = tiny.async_server(2)
    changed = accumulation.accumulate(plan, 2)
    assert [op.arguments for op in changed.roles[0].flat if op.name == "apply"] == [{"lr": tiny.LR, "scale": 0.5}]
    shared = accumulation.accumulate(tiny.hogwild(2), 2)
    assert [op.scale for op in shared.roles[0].flat if op.name == "push"] == [-tiny.LR / 2]
    assert Buffer("centre", 13, "float64", shared=True, role="centre") in shared.buffers

"""Plans that overlap with the next forward: what they compute, wait for and send, and when their forward may go."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gradsync import schedules, updates
from gradsync.check import PlanError, check
from gradsync.configuration import schemes
from gradsync.costs import Linear, alpha_beta
from gradsync.costs.fitted import fit
from gradsync.engine.bounds import hard_bound_seconds
from gradsync.engine.oracle import evaluate
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import WORLD, Collective, Local, Need, Ref
from gradsync.runtime.contenders import silent
from gradsync.schedules import Message, pipelined
from gradsync.transforms.step import Step
from tiny_workloads import workload

COST = Linear(2.0, 0.002)  # seconds, seconds a byte
SIZES = [400, 2000, 1200, 404]  # bytes
ELEMENTS = sum(SIZES) // 4
LR, MOMENTUM, TURNS = 0.1, 0.9, 20
HALVED = ("sharded", "decoupled")
OVERLAPPED = (*HALVED, "by_message")


def net():
    return workload(SIZES, [1.0, 2.0, 3.0, 4.0], dtype="float32")


def planned(schedule="mgwfbp", update="sharded", ranks=3, momentum=MOMENTUM, load=None, **step):
    scheme = schemes.Scheme(name=schedule, update=update)
    return schemes.plan(scheme, load or net(), COST, ranks, lr=LR, momentum=momentum, **step)


def gradient(rank, turn, parameter):
    drawn = np.random.default_rng((rank, turn)).normal(size=len(parameter))
    return drawn + 0.1 * parameter


def trained(plan):
    return evaluate(plan, TURNS, gradient, {"parameter": np.linspace(-1, 1, ELEMENTS)}, dtype="float64")


@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("momentum", [0.0, MOMENTUM])
@pytest.mark.parametrize("update", OVERLAPPED)
@pytest.mark.parametrize("schedule", schedules.names())
def test_twenty_steps_are_those_of_an_all_reduce(schedule, update, momentum, ranks):
    plan, whole = (planned(schedule, each, ranks, momentum) for each in (update, "ssgd"))
    check(plan)
    (expected, *_), ends = trained(whole), trained(plan)
    for end in ends:
        np.testing.assert_allclose(end["parameter"], expected["parameter"], rtol=0, atol=1e-12)


def test_a_rank_keeps_the_momentum_of_its_own_pieces_alone():
    (whole, *_), ends = trained(planned(update="ssgd")), trained(planned(update="sharded"))
    plan = planned(update="sharded")
    pieces = [plan.shards.held("momentum", rank) for rank in range(plan.ranks)]
    assert sorted(i for held in pieces for start, stop, _ in held for i in range(start, stop)) == list(range(ELEMENTS))
    for end, held in zip(ends, pieces, strict=True):
        own = np.concatenate([whole["momentum"][start:stop] for start, stop, _ in held])
        np.testing.assert_allclose(end["momentum"], own, rtol=0, atol=1e-12)
        assert np.abs(own).min() > 0


@pytest.mark.parametrize("update", OVERLAPPED)
def test_forward_of_a_layer_waits_for_its_own_parameters_and_no_others(update):
    (role,) = planned("wfbp", update).roles
    needs = [op for op in role.flat if isinstance(op, Need)]
    last = "gather" if update == "sharded" else "update"
    assert [op.layer for op in needs] == [tensor.name for tensor in reversed(planned().tensors)]
    assert [op.after_previous for op in needs] == [(f"{last}{number}",) for number in (3, 2, 1, 0)]


def test_forward_goes_by_the_order_of_layers_that_is_measured():
    order = [2, 0, 1, 3]
    layers = tuple(
        layer.model_copy(update={"forward_index": place}) for layer, place in zip(net().layers, order, strict=True)
    )
    load = net().model_copy(update={"layers": layers})
    plan = planned("wfbp", load=load)
    check(plan)
    body = plan.roles[0].flat
    assert [op.layer for op in body if isinstance(op, Need)] == [layers[number].name for number in (1, 2, 0, 3)]
    gathers = [op.name for op in body if isinstance(op, Collective) and op.kind == "all_gather"]
    assert gathers == ["gather1", "gather2", "gather0", "gather3"]


def test_a_gather_lies_where_the_schedule_puts_it():
    messages = (Message(0, 1, gathered_after=1), Message(2, 2), Message(3, 3))
    plan = updates.plan("sharded", "own", net(), messages, 2)
    check(plan)
    on_lane = [op.name for op in plan.roles[0].flat if isinstance(op, Collective)]
    assert on_lane == ["message0", "message1", "gather0", "message2", "gather2", "gather1"]


@pytest.mark.parametrize("update", OVERLAPPED)
@pytest.mark.parametrize("schedule", schedules.names())
def test_no_period_is_below_its_bound(schedule, update):
    plan = planned(schedule, update)
    seconds = simulate(plan, net(), alpha_beta.around(COST, 3)).iteration_seconds(0)
    assert seconds >= hard_bound_seconds(plan, net()) - 1e-9


def test_both_halves_send_what_an_all_reduce_sends():
    def sent(plan):
        factor = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1}
        return sum(factor[op.kind] * plan.bytes_of(op.writes) for op in plan.communications())

    assert {sent(planned(update=update)) for update in (*OVERLAPPED, "ssgd")} == {2 * sum(SIZES)}


@pytest.mark.parametrize("update", ["sharded", "by_message"])
def test_micro_batches_and_statistics_and_a_narrow_wire_go_with_it(update):
    load = net().model_copy(update={"statistics": 6})
    scheme = schemes.Scheme(name="wfbp", update=update, wire="float16")
    plan = schemes.plan(scheme, load, COST, 3, lr=LR, momentum=MOMENTUM, accumulate=3)
    check(plan)
    assert plan.passes == 3
    assert sum(isinstance(op, Local) and op.kernel == "cast" for op in plan.roles[0].flat) == 2 * len(SIZES)


@pytest.mark.parametrize("update", HALVED)
@pytest.mark.parametrize("accumulate", [1, 3])
def test_statistics_are_sent_before_the_next_forward_changes_them(update, accumulate):
    load = net().model_copy(update={"statistics": 6})
    two_lanes = (Message(0, 1, "network0"), Message(2, 3, "network1"))
    plan = updates.plan(update, "own", load, two_lanes, 3, step=Step(accumulate=accumulate))
    check(plan)
    (role,) = plan.roles
    dropped = tuple(op for op in role.flat if op.name != "statistics")
    without = tuple(
        dataclasses.replace(op, after_previous=tuple(name for name in op.after_previous if name != "statistics"))
        for op in role.flat
    )
    for body, problem in ((without, "race on statistics"), (with_no_wait(dropped), "drifted apart")):
        with pytest.raises(PlanError, match=problem):
            check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),)))


def with_no_wait(body):
    return tuple(
        dataclasses.replace(op, after_previous=tuple(name for name in op.after_previous if name != "statistics"))
        for op in body
    )


def test_a_gather_behind_a_message_that_is_not_there_is_refused():
    messages = (Message(0, 1, gathered_after=2), Message(2, 3))
    with pytest.raises(InputError, match="a gather follows message 2: there are 2"):
        updates.plan("sharded", "own", net(), messages, 2)


def test_halves_of_a_measured_all_reduce_take_half_of_it():
    sizes = np.geomspace(1e3, 1e7, 30)
    cost = fit(sizes, np.where(sizes < 3e4, 1e-3 + 2e-9 * sizes, 4e-3 + 1e-9 * sizes))  # a switch of protocol
    load = workload([4 * 10**6] * 4, [0.01, 0.02, 0.03, 0.04], dtype="float32", forward=0.05)
    plan = schemes.plan(schemes.Scheme(name="pipelined"), load, cost, 3)
    _, planned_period = pipelined.searched(pipelined.Halves(load, cost), 40_000)
    network = alpha_beta.around(cost, 3)
    assert simulate(plan, load, network).iteration_seconds(0) == pytest.approx(planned_period.seconds)
    assert network.of("all_gather").seconds(4e6) == pytest.approx(cost.seconds(4e6) / 2)


@pytest.mark.parametrize(
    ("update", "step", "text"),
    [
        ("decoupled", Step(wire="float16"), "'gather0' is no sum of one range of gradients"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(update, step, text):
    with pytest.raises(InputError, match=text):
        updates.plan(update, "own", net(), schedules.grouped([1, 3]), 2, step=step)


CLIPPED = 15.0  # what shortens most of the gradients of two ranks, and not all of them


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("update", OVERLAPPED)
@pytest.mark.parametrize("schedule", ["wfbp", "single", "pipelined", "dear"])
def test_clipping_part_by_part_is_that_of_the_whole_gradient(schedule, update, ranks):
    plan, whole = (planned(schedule, each, ranks, clip_norm=CLIPPED) for each in (update, "ssgd"))
    check(plan)
    (expected, *_), ends = trained(whole), trained(plan)
    for end in ends:
        np.testing.assert_allclose(end["parameter"], expected["parameter"], rtol=0, atol=1e-12)
    if ranks < 3:
        free, *_ = trained(planned(schedule, "ssgd", ranks))
        assert np.abs(free["parameter"] - expected["parameter"]).max() > 1e-3


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("step", [{}, {"clip_norm": CLIPPED}], ids=["free", "clipped"])
def test_pieces_on_lanes_train_alike(lanes, ranks, step):
    scheme = schemes.Scheme(name="own", schedule="pipelined", options={"lanes": lanes})
    plan = schemes.plan(scheme, net(), COST, ranks, lr=LR, momentum=MOMENTUM, **step)
    check(plan)
    sums = [op for op in plan.roles[0].flat if isinstance(op, Collective) and op.kind == "reduce_scatter"]
    assert {op.lane for op in sums} == {f"network{number}" for number in range(lanes)}
    (expected, *_), ends = trained(planned("single", "ssgd", ranks, **step)), trained(plan)
    for end in ends:
        np.testing.assert_allclose(end["parameter"], expected["parameter"], rtol=0, atol=1e-12)


OVERFLOW, LOSS_SCALE = 7, 1024.0  # the turn in which a gradient of the last rank is infinite


def trained_scaled(plan):
    """Under a loss scale that halves once."""

    def scaled(rank, turn, parameter):
        values = gradient(rank, turn, parameter) * (LOSS_SCALE if turn <= OVERFLOW else LOSS_SCALE / 2)
        values[11] = np.inf if (rank, turn) == (plan.ranks - 1, OVERFLOW) else values[11]
        return values

    first = {"parameter": np.linspace(-1, 1, ELEMENTS), "scaler": np.array([LOSS_SCALE, 0.0, 0.0])}
    return evaluate(plan, TURNS, scaled, first, dtype="float64")


@pytest.mark.parametrize("clip", [None, CLIPPED])
@pytest.mark.parametrize("ranks", [1, 3])
@pytest.mark.parametrize("update", OVERLAPPED)
@pytest.mark.parametrize("schedule", ["wfbp", "single", "pipelined", "dear"])
def test_a_loss_scale_part_by_part_is_that_of_the_whole_gradient(schedule, update, ranks, clip):
    plan, whole = (planned(schedule, each, ranks, loss_scaling=True, clip_norm=clip) for each in (update, "ssgd"))
    check(plan)
    (expected, *_), ends = trained_scaled(whole), trained_scaled(plan)
    for end in ends:
        np.testing.assert_allclose(end["parameter"], expected["parameter"], rtol=0, atol=1e-12)
        assert end["scaler"].tolist() == [LOSS_SCALE / 2, TURNS - OVERFLOW - 1, 1]
    assert np.isfinite(expected["parameter"]).all()


@pytest.mark.parametrize("update", OVERLAPPED)
def test_the_simulator_knows_what_a_loss_scale_takes(update):
    """Updates wait for the norm as they do for clipping, and the next forward for the loss scale."""
    load = net().model_copy(update={"norm_seconds": 0.5, "update_seconds": 0.25})
    network = alpha_beta.around(COST, 3)
    how = ({}, {"clip_norm": CLIPPED}, {"loss_scaling": True})
    plans = [planned("wfbp", update, **each) for each in how]
    free, clipped, scaled = (simulate(plan, load, network).iteration_seconds(0) for plan in plans)
    assert free < clipped <= scaled
    assert hard_bound_seconds(plans[-1], load) <= scaled + 1e-9


@pytest.mark.parametrize("update", HALVED)
def test_a_norm_of_shards_takes_one_small_message_before_any_gather(update):
    plan, free = planned("wfbp", update, clip_norm=CLIPPED), planned("wfbp", update)
    sent = [op for op in plan.communications() if op not in free.communications() and op.kind == "all_reduce"]
    (squares,) = sent
    assert plan.bytes_of(squares.writes) == 4 * len(SIZES)
    body = [op.name for op in plan.roles[0].flat]
    lasts = [op.name for op in plan.communications() if op.kind == "reduce_scatter"]
    gathers = [op.name for op in plan.communications() if op.kind == "all_gather"]
    assert max(map(body.index, lasts)) < body.index("squares") < min(map(body.index, gathers))
    periods = [simulate(each, net(), alpha_beta.around(COST, 3)).iteration_seconds(0) for each in (free, plan)]
    assert periods[0] < periods[1]  # updates wait for all of backward


def test_a_gather_between_two_messages_goes_behind_the_norm():
    messages = (Message(0, 1, gathered_after=1), Message(2, 2), Message(3, 3))
    plan = updates.plan("sharded", "own", net(), messages, 2, step=Step(clip_norm=CLIPPED))
    check(plan)
    on_lane = [op.name for op in plan.roles[0].flat if isinstance(op, Collective)]
    assert on_lane == ["message0", "message1", "message2", "squares", "gather0", "gather2", "gather1"]


def setting(name, **values):
    return lambda body: [dataclasses.replace(op, **values) if op.name == name else op for op in body]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            setting("squares:update1", reads=(Ref("gradient", 100, 598, (WORLD,)),)),
            "'squares:update1' reads gradient.* nothing",
        ),
        (setting("squares", writes=(Ref("squares", 0, 1),), reads=(Ref("squares", 0, 1),)), "norm of something else"),
        (setting("norm", reads=(Ref("squares", 0, 1),)), "clips with the norm of something else"),
        (setting("squares", after=("squares:update0",)), "race on squares"),
        (setting("norm", kernel="squares"), "clips to a norm and finds sum of squares"),
        (setting("norm", kernel="copy", reads=(Ref("squares", 0, 1),)), "clips to a norm and finds sum of squares"),
    ],
)
def test_a_norm_that_is_not_of_all_shards_is_found(change, problem):
    plan = planned("wfbp", "sharded", ranks=2, clip_norm=CLIPPED)
    (role,) = plan.roles
    with pytest.raises(PlanError, match=problem):
        check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=tuple(change(role.body))),)))


def test_squares_that_no_message_sums_and_those_that_are_summed_twice_are_found():
    plan = planned("wfbp", "sharded", ranks=2, clip_norm=CLIPPED)
    (role,) = plan.roles
    squares = next(op for op in role.body if op.name == "squares")
    unsent = [dataclasses.replace(op, after=squares.after) if op.name == "norm" else op for op in role.body]
    body = tuple(op for op in unsent if op is not squares)
    with pytest.raises(PlanError, match="clips with the norm of something else"):
        check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),)))
    norm = next(op for op in role.body if op.name == "norm")
    again = dataclasses.replace(squares, name="again", after=("squares",))
    late = dataclasses.replace(norm, after=("again",))
    body = tuple(each for op in role.body for each in ((again, late) if op is norm else (op,)))
    with pytest.raises(PlanError, match="finds sum of several"):
        check(dataclasses.replace(plan, roles=(dataclasses.replace(role, body=body),)))


def test_updates_without_messages_have_the_norm_of_their_own_gradients():
    quiet = silent(planned("wfbp", "sharded", ranks=2, clip_norm=CLIPPED))
    alone = silent(planned("wfbp", "ssgd", ranks=2, clip_norm=CLIPPED))
    for end, expected in zip(trained(quiet), trained(alone), strict=True):
        np.testing.assert_allclose(end["parameter"], expected["parameter"], rtol=0, atol=1e-12)


def test_updates_without_messages_skip_the_steps_of_their_own_gradients():
    quiet, alone = (silent(planned("wfbp", each, ranks=2, loss_scaling=True)) for each in ("sharded", "ssgd"))
    for end, expected in zip(trained_scaled(quiet), trained_scaled(alone), strict=True):
        np.testing.assert_allclose(end["parameter"], expected["parameter"], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(end["scaler"], expected["scaler"])


def test_collectives_without_halves_are_refused_when_a_scheme_is_read():
    with pytest.raises(InputError, match="'binary_tree' has no reduce_scatter"):
        schemes.Scheme(name="own", schedule="pipelined", collective="binary_tree").refuse_nonsense("here")
    with pytest.raises(InputError, match="'halving_doubling' has no reduce_scatter on 3 ranks"):
        schemes.Scheme(name="own", schedule="pipelined", collective="halving_doubling").refuse_ranks(3)


def test_every_collective_sums_messages_that_are_updated_one_by_one():
    for collective in ("binary_tree", "halving_doubling", "ps_central"):
        scheme = schemes.Scheme(name="own", schedule="priority", collective=collective)
        assert scheme.update == "by_message"
        scheme.refuse_nonsense("here")
        scheme.refuse_ranks(3)


def test_each_message_is_followed_by_the_update_of_its_own_range():
    plan = planned("priority", "by_message")
    body = plan.roles[0].flat
    messages = [op for op in body if isinstance(op, Collective)]
    for number, message in enumerate(messages):
        update = body[body.index(message) + 1]
        assert (update.name, update.after) == (f"update{number}", (message.name,))
        assert {ref[1:] for ref in (*update.reads, *update.writes)} == {message.writes[0][1:]}

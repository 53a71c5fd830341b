"""Pieces by priority: their order, the simulation, all other orders of them, and the sweep over partition sizes."""

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from gradsync import schedules
from gradsync.check import check
from gradsync.configuration import schemes
from gradsync.costs import Linear, alpha_beta
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.plan import piece
from gradsync.schedules import Message, priority
from tiny_workloads import costs, workload, workloads

SEEDS = 40


def drawn(seed, layers=5):
    """A net and a cost whose messages last a third to three times as long as computation."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 2000, layers) * 4
    load = workload(sizes.tolist(), random.uniform(0, 4, layers).tolist(), dtype="float32")
    load = load.model_copy(update={"forward_seconds": load.backward_seconds * float(random.uniform(0.2, 1.0))})
    transfer = (load.backward_seconds + load.forward_seconds) * float(random.uniform(0.3, 3.0))
    return load, Linear(transfer * float(random.choice([0.0, 0.01, 0.1])), transfer / load.bytes)


def period(load, cost, messages):
    """Written out: messages one after the other, then forward layer by layer."""
    ready = np.cumsum([layer.backward_seconds for layer in load.layers])
    lane, ends = 0.0, dict.fromkeys(range(len(load.layers)), 0.0)
    for message in messages:
        start, stop = piece(0, load.layers[message.first].bytes // 4, *message.part)
        lane = max(lane, ready[message.last]) + cost.seconds(4 * (stop - start))
        ends[message.last] = max(ends[message.last], lane)
    now = ready[-1]
    for layer in load.forward_order():
        now = max(now, ends[layer]) + load.forward_by_layer()[layer]
    return now


@settings(max_examples=60)
@given(load=workloads(), cost=costs)
def test_every_piece_is_sent_once_and_none_is_larger_than_a_partition(load, cost):
    for partition in (1, 100, 4096, load.bytes):
        if sum(layer.bytes for layer in load.layers) / partition > 5000:
            continue
        messages = schedules.messages("priority", load, cost, {"partition_bytes": partition})
        assert max(Counter(messages).values()) == 1
        pieces = Counter((message.first, message.last, message.part[1]) for message in messages)
        assert sorted(first for first, _, _ in pieces) == list(range(len(load.layers)))
        for (first, last, count), times in pieces.items():
            assert first == last
            assert times == count
            assert max(
                b - a for a, b in (piece(0, load.layers[first].bytes // 4, i, count) for i in range(count))
            ) <= max(1, partition // 4)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_of_what_is_ready_the_piece_goes_first_that_forward_needs_first(seed):
    load, cost = drawn(seed)
    left = schedules.messages("priority", load, cost, {})
    ready, lane = np.cumsum([layer.backward_seconds for layer in load.layers]), 0.0
    place = {layer: number for number, layer in enumerate(load.forward_order())}
    while left:
        sent, *left = left
        lane = max(lane, ready[sent.last])
        rivals = [message for message in left if ready[message.last] <= lane]
        assert all(place[sent.last] <= place[message.last] for message in rivals)
        start, stop = piece(0, load.layers[sent.first].bytes // 4, *sent.part)
        lane += cost.seconds(4 * (stop - start))


def test_the_last_layer_of_backward_overtakes_pieces_of_those_before_it():
    load = workload([400, 40], [1.0, 2.5], dtype="float32", forward=1.0)
    messages = schedules.messages("priority", load, Linear(0.0, 0.01), {"partition_bytes": 100})
    assert messages == (
        *(Message(0, 0, part=(index, 4)) for index in (0, 1)),  # from 1 to 3; then layer 1 is not ready yet
        Message(0, 0, part=(2, 4)),
        Message(1, 1),
        Message(0, 0, part=(3, 4)),
    )


def test_priority_is_that_of_the_measured_forward_order():
    layers = [
        layer.model_copy(update={"forward_index": place})
        for layer, place in zip(workload([40, 40, 40], [1.0, 0.0, 0.0]).layers, (1, 2, 0), strict=True)
    ]
    load = workload([40, 40, 40], [1.0, 0.0, 0.0]).model_copy(update={"layers": tuple(layers)})
    assert [message.first for message in schedules.messages("priority", load, Linear(0.0, 1.0), {})[:1]] == [2]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_period_is_what_is_simulated(seed):
    load, cost = drawn(seed)
    plan = schemes.plan(schemes.Scheme(name="priority"), load, cost, 4)
    check(plan)
    swept = priority.swept(priority.Tensors(load, cost))
    assert swept.period == pytest.approx(period(load, cost, swept.messages), rel=1e-12)
    seconds = simulate(plan, load, alpha_beta.around(cost, 4)).iteration_seconds(0)
    assert seconds == pytest.approx(swept.period, rel=1e-9)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_order_of_the_same_pieces_is_much_better(seed):
    """All orders of whole tensors, those that leave the lane idle too. Priority never interrupts and never waits."""
    load, cost = drawn(seed)
    whole = priority.Tensors(load, cost).sent(load.bytes)
    periods = [period(load, cost, order) for order in itertools.permutations(whole.messages)]
    longest = max(cost.seconds(layer.bytes) for layer in load.layers)
    assert min(periods) * (1 - 1e-12) <= whole.period <= min(periods) + longest


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_sweep_is_as_good_as_every_partition_size_that_it_tries_and_as_whole_tensors(seed):
    load, cost = drawn(seed)
    tensors = priority.Tensors(load, cost)
    swept = priority.swept(tensors)
    assert swept.period <= tensors.sent(load.bytes).period
    for partition in tensors.partitions():
        assert swept.period <= tensors.sent(partition).period * (1 + 1e-12)
    in_backward_order = period(load, cost, schedules.messages("wfbp", load, cost, {}))
    longest = max(cost.seconds(layer.bytes) for layer in load.layers)
    assert swept.period <= in_backward_order + longest


def test_a_smaller_partition_lets_the_first_layer_through():
    load = workload([40_000, 40], [1.0, 1.0], dtype="float32", forward=4.0)
    whole, swept = (
        of(priority.Tensors(load, Linear(0.001, 0.001))) for of in (lambda t: t.sent(load.bytes), priority.swept)
    )
    assert len(whole.messages) == 2
    assert len(swept.messages) > 2
    assert swept.period < whole.period


def test_long_start_ups_leave_tensors_whole():
    load, _ = drawn(3)
    messages = schedules.messages("priority", load, Linear(100.0, 1e-9), {})
    assert {message.part for message in messages} == {(0, 1)}


def test_604_tensors_are_planned():
    load, cost = drawn(1, layers=604)
    messages = schedules.messages("priority", load, cost, {})
    assert 604 <= len(messages) <= priority.MOST


def test_a_negative_partition_is_refused():
    load, cost = drawn(0)
    with pytest.raises(InputError, match="partition_bytes=-1: at least 1, or 0"):
        schedules.messages("priority", load, cost, {"partition_bytes": -1})

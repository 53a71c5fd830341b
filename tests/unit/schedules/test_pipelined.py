"""The schedule of the shortest period: against the simulation, exhaustive search, its bound, and the exact halves."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from gradsync import schedules
from gradsync.check import check
from gradsync.configuration import schemes
from gradsync.costs import Linear, Network, alpha_beta, fitted
from gradsync.costs.contention import Contended, host_seconds
from gradsync.costs.half import halves
from gradsync.costs.scaled import Scaled
from gradsync.engine.simulate import simulate
from gradsync.errors import InputError
from gradsync.schedules import Message, dear, pipelined
from tiny_workloads import costs, workload, workloads

LAYERS = 7
SEEDS = 40


def drawn(seed, layers=LAYERS):
    """A net and a cost whose messages last a third to three times as long as computation."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 2000, layers) * 4
    load = workload(sizes.tolist(), random.uniform(0, 4, layers).tolist(), dtype="float32")
    load = load.model_copy(update={"forward_seconds": load.backward_seconds * float(random.uniform(0.2, 1.0))})
    transfer = (load.backward_seconds + load.forward_seconds) * float(random.uniform(0.3, 3.0))
    return load, Linear(transfer * float(random.choice([0.0, 0.01, 0.1])), transfer / load.bytes)


def groupings(layers):
    for inside in itertools.product((False, True), repeat=layers - 1):
        yield (*(number for number, ends in enumerate(inside) if ends), layers - 1)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_period_is_what_is_simulated(seed):
    load, cost = drawn(seed)
    net = pipelined.Halves(load, cost)
    plan = schemes.plan(schemes.Scheme(name="pipelined"), load, cost, 4)
    check(plan)
    _, shortest = pipelined.searched(net, 40_000)
    seconds = simulate(plan, load, alpha_beta.around(cost, 4)).iteration_seconds(0)
    assert seconds == pytest.approx(shortest.seconds, rel=1e-9)


@pytest.mark.parametrize("share", [1.0, 1.2, 1 / 0.6, 2.0])
@pytest.mark.parametrize("lanes", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_in_pieces_on_lanes_the_period_is_what_is_simulated(seed, lanes, share):
    load, alone = drawn(seed)
    cost = Contended(alone, share)
    net = pipelined.Halves(load, cost, lanes)
    plan = schemes.plan(schemes.Scheme(name="pipelined", options={"lanes": lanes}), load, cost, 4)
    check(plan)
    _, shortest = pipelined.searched(net, 40_000)
    network = alpha_beta.around(alone, 4)
    network = Network({**network.costs, **halves(cost), "all_reduce": cost})
    # pieces of a message may differ by an element
    assert simulate(plan, load, network).iteration_seconds(0) == pytest.approx(shortest.seconds, rel=2e-3)
    assert shortest.charged >= net.bound_seconds() * (1 - 1e-9)
    in_one = pipelined.searched(pipelined.Halves(load, cost), 40_000)[1].seconds
    if share == 1.0 and not alone.a:  # a link that one message fills
        assert shortest.seconds >= in_one * (1 - 1e-9)
    if share == 2.0 and lanes == 2 and not alone.a:
        assert shortest.seconds <= in_one * (1 + 1e-9)


def test_a_message_has_no_more_pieces_than_elements_and_gathers_follow_on_their_lanes():
    load = workload([4, 4000, 400], [1.0, 1.0, 1.0], dtype="float32")
    messages = (
        Message(0, 0, gathered_after=1),
        Message(1, 1, gathered_after=2),
        Message(2, 2),
    )
    assert [(each.first, each.lane, each.part, each.gathered_after) for each in pipelined.split(messages, load, 2)] == [
        (0, "network0", (0, 1), 1),
        (1, "network0", (0, 2), 3),
        (1, "network1", (1, 2), 4),
        (2, "network0", (0, 2), None),
        (2, "network1", (1, 2), None),
    ]
    with pytest.raises(InputError, match="pipelined: lanes=0: at least 1"):
        schedules.get("pipelined")(load, Linear(1.0, 1.0), lanes=0)


def with_halves(cost, scatter, gather, smallest=4.0, largest=1e6):
    """A fit of the line of `cost` that knows what its halves take, so many times as long as the whole."""
    sizes = np.geomspace(smallest, largest, 8)
    whole, *both = (fitted.fit(sizes, times * np.asarray(cost.seconds(sizes))) for times in (1.0, scatter, gather))
    return dataclasses.replace(whole, halves=dict(zip(("reduce_scatter", "all_gather"), both, strict=True)))


@pytest.mark.parametrize("seed", range(10))
def test_measured_halves_are_planned_and_simulated_with(seed):
    """A gather that takes three times as long as the scatter: the period is that of these, and the groups change."""
    load, cost = drawn(seed)
    cost = with_halves(Linear(cost.a + 1e-3, cost.b), 0.25, 0.75)
    plan = schemes.plan(schemes.Scheme(name="pipelined"), load, cost, 4)
    net = pipelined.Halves(load, cost)
    _, shortest = pipelined.searched(net, 40_000)
    network = alpha_beta.around(cost, 4)
    assert network.of("all_gather").seconds(1000) == pytest.approx(3 * network.of("reduce_scatter").seconds(1000))
    seconds = simulate(plan, load, network).iteration_seconds(0)
    assert seconds == pytest.approx(shortest.seconds, rel=1e-9)
    assert net.bound_seconds() <= min(net.period(lasts).seconds for lasts in groupings(LAYERS)) * (1 + 1e-9)
    # planned with halves of the all-reduce it takes no less
    blind = schemes.plan(schemes.Scheme(name="pipelined"), load, dataclasses.replace(cost, halves={}), 4)
    assert seconds <= simulate(blind, load, network).iteration_seconds(0) * (1 + 1e-9)


def test_what_wraps_a_cost_keeps_its_measured_halves():
    cost = with_halves(Linear(1.0, 0.5), 0.25, 0.75)
    for wrapped, factor in ((Contended(cost, 1.5, 0.2), 1.0), (Scaled(cost, 2.0, 2.0), 2.0)):
        for kind, share in (("reduce_scatter", 0.25), ("all_gather", 0.75)):
            half = halves(wrapped)[kind]
            assert half.seconds(1000.0) == pytest.approx(factor * share * cost.seconds(1000.0))
    assert host_seconds(halves(Contended(cost, 1.5, 0.2))["all_gather"]) == 0.1


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_search_comes_near_the_best_of_all_groupings(seed):
    load, cost = drawn(seed)
    net = pipelined.Halves(load, cost)
    best = min(net.period(lasts).seconds for lasts in groupings(LAYERS))
    _, shortest = pipelined.searched(net, 40_000)
    assert net.bound_seconds() * (1 - 1e-12) <= best <= shortest.seconds <= 1.02 * best


@settings(max_examples=100)
@given(load=workloads(), cost=costs)
def test_it_is_never_worse_than_the_same_groups_of_any_other_schedule(load, cost):
    net = pipelined.Halves(load, cost)
    _, shortest = pipelined.searched(net, 40_000)
    lasts = tuple(message.last for message in schedules.messages("optimal", load, cost, {}))
    assert shortest.seconds <= max(net.period(lasts).seconds, net.period((len(load.layers) - 1,)).seconds) + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_gathers_read_from_the_end_are_messages_of_a_backward(seed):
    """The time from the last scatter to the end of forward, over all groupings: the exact optimum of one half."""
    load, cost = drawn(seed)
    net = pipelined.Halves(load, cost)
    *_, lasts = pipelined.beginnings(net)  # of forward alone

    def of_forward(lasts):
        lane = now = 0.0
        for first, last in reversed(list(zip((0, *(last + 1 for last in lasts[:-1])), lasts, strict=True))):
            lane += net.seconds(first, last)[1]
            now = max(now, lane) + net.ahead[last + 1] - net.ahead[first]
        return now

    assert of_forward(lasts) == pytest.approx(min(map(of_forward, groupings(LAYERS))))


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("host", [0.0, 0.02, 0.05])
def test_the_host_is_charged_as_in_the_best_of_all_groupings(seed, host):
    """`host`: of computation, for each start; what is found takes at most 2 % more, in no more messages."""
    load, cost = drawn(seed)
    seconds = host * (load.backward_seconds + load.forward_seconds)
    cost = Contended(Linear(cost.a + 2 * seconds, cost.b), 1.0, seconds)
    net = pipelined.Halves(load, cost)
    every = {lasts: net.period(lasts) for lasts in groupings(LAYERS)}
    least = min(period.charged for period in every.values())
    lasts, shortest = pipelined.searched(net, 40_000)
    cores = load.backward_seconds + load.forward_seconds + len(lasts) * seconds
    assert shortest.charged == pytest.approx(max(shortest.seconds, cores), rel=1e-12)
    assert net.bound_seconds() * (1 - 1e-12) <= least <= shortest.charged <= 1.02 * least
    for number in range(len(lasts) - 1):  # no two of them could as well be one
        other = net.period((*lasts[:number], *lasts[number + 1 :]), (shortest.late,))
        assert other.charged > shortest.charged


def test_hidden_messages_are_few():
    """A network that is five times as fast as it needs to be: without the host in the cost each layer went alone."""
    load, _ = drawn(1, layers=60)
    computation = load.backward_seconds + load.forward_seconds
    cost = Linear(1e-4 * computation, 0.2 * computation / load.bytes)
    lasts, shortest = pipelined.searched(pipelined.Halves(load, cost), 40_000)
    by_layer = pipelined.Halves(load, cost).period(tuple(range(60)))
    assert shortest.seconds <= by_layer.seconds * (1 + 1e-9)
    assert len(lasts) <= 12


def test_a_host_that_starts_slowly_gets_fewer_messages():
    load, _ = drawn(1, layers=60)
    computation = load.backward_seconds + load.forward_seconds
    transfer = Linear(0.05 * computation, 0.3 * computation / load.bytes)
    free, slow = (
        len(pipelined.searched(pipelined.Halves(load, Contended(transfer, 1.0, host)), 40_000)[0])
        for host in (0.0, 0.04 * computation)
    )
    assert slow < free


def test_gathers_go_into_the_gaps_of_a_long_backward():
    load = workload([4000, 4000, 4000], [1.0, 6.0, 6.0], dtype="float32")
    messages = schedules.messages("pipelined", load, Linear(0.0, 0.001), {})
    assert [message.gathered_after for message in messages] == [0, 1, None]


def test_a_search_without_effort_is_the_best_beginning_and_a_negative_one_is_refused():
    load, cost = drawn(3)
    assert schedules.messages("pipelined", load, cost, {"effort": 0})
    with pytest.raises(InputError, match="effort=-1: at least 0"):
        schedules.messages("pipelined", load, cost, {"effort": -1})


def test_604_tensors_are_planned():
    load, cost = drawn(1, layers=604)
    messages = schedules.messages("pipelined", load, cost, {})
    assert [message.first for message in messages[1:]] == [message.last + 1 for message in messages[:-1]]


# DeAR's fusion


def lasts(sizes, bucket):
    load = workload(sizes, [1.0] * len(sizes), dtype="float32")
    return [message.last for message in dear.schedule(load, Linear(0.0, 1.0), bucket_bytes=bucket)]


def test_dear_fills_its_buffers_from_the_front_of_the_net():
    assert lasts([400, 400, 400, 400, 400], 800) == [0, 2, 4]
    assert lasts([400, 2000, 400, 400], 800) == [0, 1, 3]  # a tensor that no buffer holds is alone
    assert lasts([400, 400], 10**9) == [1]
    with pytest.raises(InputError, match="bucket_bytes=0"):
        lasts([400], 0)

"""Planners in their own prediction: contention, host times, and computation that messages slow down."""

import itertools

import numpy as np
import pytest

from gradsync import schedules, updates
from gradsync.check import check
from gradsync.configuration.scheme import Scheme
from gradsync.configuration.schemes import plan
from gradsync.costs import Linear, alpha_beta
from gradsync.costs.beside import Beside, interference
from gradsync.costs.contention import Contended
from gradsync.costs.fitted import fit
from gradsync.costs.interference import Interference, InterferencePoint
from gradsync.engine.simulate import simulate
from gradsync.schedules import _slowed, grouped, optimal, pipelined
from tiny_workloads import workload

SEEDS = range(40)
OTHERS = ("naive", "wfbp", "mgwfbp", "single")
BUCKETS = (4, 400, 2000, 8000, 20_000, 10**6)
NOTHING = Interference(points=(InterferencePoint(bytes=1, computation=1.0, communication=1.0),))


def drawn(seed, layers=None):
    """A net, the cost of its messages alone, and how these and computation slow one another down."""
    random = np.random.default_rng(seed)
    layers = layers or int(random.integers(1, 10))
    sizes = random.integers(1, 2000, layers) * 4
    load = workload(
        sizes.tolist(), random.uniform(0, 4, layers).tolist(), forward=float(random.uniform(0, 4)), update=0.5
    )
    transfer = load.backward_seconds * float(random.uniform(0.2, 2.0))
    line = Linear(transfer * float(random.choice([0.0, 0.01, 0.1, 0.3])), transfer / load.bytes)
    cost = line
    if seed % 3 == 1:  # start-up jumps
        at = np.geomspace(4, load.bytes + 8, 16)
        cost = fit(at, line.seconds(at) + np.where(at > load.bytes / 3, 0.1 * transfer, 1e-3 * transfer))
    if seed % 2:
        cost = Contended(cost, float(random.choice([1.0, 1.5, 3.0])), 0.5 * cost.startup_seconds(4.0))
    ends = np.sort(random.integers(4, load.bytes + 8, 3))
    points = tuple(
        InterferencePoint(bytes=int(size), computation=random.uniform(1, 2.5), communication=random.uniform(1, 3))
        for size in np.unique(ends)
    )
    handover = float(random.choice([0.0, 0.02, 0.3]))
    return load, cost, Interference(points=points, handover_seconds=handover)


def ready_at_once(seed):
    """The same, where the gradients of some layers, or of all, are there when the iteration begins."""
    load, cost, slowing = drawn(seed)
    at_once = 1 + seed % len(load.layers)
    layers = tuple(
        layer.model_copy(update={"backward_seconds": 0.0}) if i < at_once else layer
        for i, layer in enumerate(load.layers)
    )
    load = load.model_copy(update={"forward_seconds": 0.0, "layers": layers})
    return load, cost, slowing.model_copy(update={"handover_seconds": 0.3})


NETS = (drawn, ready_at_once)


def iteration(load, cost, slowing, name, **options):
    """Predicted seconds of a schedule that is planned for just this prediction."""
    planned = plan(Scheme(name="any", schedule=name, options=options), load, Beside(cost, slowing), 2)
    return simulate(planned, load, alpha_beta.around(cost, 2), interference=slowing).iteration_seconds(0)


def simulated(load, cost, slowing, messages):
    planned = updates.plan("ssgd", "any", load, messages, 2)
    return simulate(planned, load, alpha_beta.around(cost, 2), interference=slowing).iteration_seconds(0)


def groupings(layers):
    for inside in itertools.product((False, True), repeat=layers - 1):
        yield (*(number for number, ends in enumerate(inside) if ends), layers - 1)


def net_of(load, cost, slowing):
    return _slowed.Slowed(load, optimal._table(load, cost), slowing)


def end_of(net, lasts, held=None):
    """Of the last of these messages; those from number `held` on wait for backward."""
    state, first = _slowed.FIRST, 0
    for number, last in enumerate(lasts):
        if held is None or number < held:
            state = net.sent(state, first, last)
        else:
            ready = net.backward_end + state.late
            start = state.free if ready <= state.free else ready + net.handover
            state = _slowed.State(start + net.alone[last + 1, first], state.late)
        first = last + 1
    return float(state.free)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_other_schedule_on_one_lane_is_predicted_to_be_faster(seed):
    load, cost, slowing = drawn(seed)
    for slows in (slowing, NOTHING):
        least = iteration(load, cost, slows, "optimal")
        others = {name: iteration(load, cost, slows, name) for name in OTHERS}
        for size in BUCKETS:
            for first in {size, min(size, 400)}:
                chosen = {"bucket_bytes": size, "first_bucket_bytes": first}
                others[size, first] = iteration(load, cost, slows, "fixed_buckets", **chosen)
        assert least <= min(others.values()) * (1 + 1e-9), others


@pytest.mark.parametrize("net_of_a_seed", NETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_messages_end_under_slow_down_as_they_are_simulated(seed, net_of_a_seed):
    load, cost, slowing = net_of_a_seed(seed)
    net, random = net_of(load, cost, slowing), np.random.default_rng(seed)
    for _ in range(3):
        inside = np.flatnonzero(random.integers(0, 2, len(load.layers) - 1)).tolist()
        lasts = (*inside, len(load.layers) - 1)
        after = load.update_seconds + slowing.handover_seconds  # the update waits for the last message
        for messages, end in ((grouped(lasts), end_of(net, lasts)), (net.messages(lasts), net.sending(lasts).end)):
            assert simulated(load, cost, slowing, messages) == pytest.approx(end + after, rel=1e-9)


@pytest.mark.parametrize("net_of_a_seed", NETS)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slowed", [False, True])
def test_it_is_the_best_of_all_groupings_in_the_fewest_messages(seed, slowed, net_of_a_seed):
    load, cost, slowing = net_of_a_seed(seed)
    slowing = slowing if slowed else NOTHING
    net = net_of(load, cost, slowing)
    ends = {
        (lasts, held): end_of(net, lasts, held)
        for lasts in groupings(len(load.layers))
        for held in range(len(lasts) + 1)
    }
    least = min(ends.values())
    messages = optimal.schedule(load, Beside(cost, slowing))
    held = sum(not message.after_backward for message in messages)
    assert ends[tuple(message.last for message in messages), held] == pytest.approx(least, rel=1e-11)
    assert len(messages) == min(len(lasts) for (lasts, _), end in ends.items() if end <= least * (1 + 1e-12))


@pytest.mark.parametrize("seed", range(6))
def test_of_many_layers_it_lies_between_its_bound_and_what_it_begins_with(seed, monkeypatch):
    load, cost, slowing = drawn(seed, layers=60)
    without = optimal.alone(load, cost)
    bound = end_of(net_of(load, cost, NOTHING), tuple(message.last for message in without))
    assert interference(Beside(cost, NOTHING)) is None
    seconds = iteration(load, cost, slowing, "optimal")
    assert seconds >= bound + load.update_seconds
    for name in OTHERS:
        assert seconds <= iteration(load, cost, slowing, name) * (1 + 1e-9)
    # the same search, of nets that all groupings are known of
    few, cost, slowing = drawn(seed, layers=10)
    exact = iteration(few, cost, slowing, "optimal")
    monkeypatch.setattr(_slowed, "EVERY", 0)
    assert exact * (1 - 1e-9) <= iteration(few, cost, slowing, "optimal") <= 1.02 * exact


def test_slow_down_changes_the_optimum_and_costs_no_other_planner():
    """With a hand-over and slow messages beside backward, what was optimal without them loses to its own prediction."""
    better = held = 0
    for seed in SEEDS:
        load, cost, slowing = drawn(seed, layers=8)
        before, beside = simulated(load, cost, slowing, optimal.alone(load, cost)), Beside(cost, slowing)
        messages = optimal.schedule(load, beside)
        check(updates.plan("ssgd", "any", load, messages, 2))
        held += any(message.after_backward for message in messages)
        better += simulated(load, cost, slowing, messages) < 0.999 * before
        for literal in ("mgwfbp", "ascwfbp", "kway"):
            both = (schedules.messages(literal, load, each, {}) for each in (cost, Beside(cost, slowing)))
            assert next(both) == next(both)
    assert better > len(SEEDS) / 10
    assert held > 0


def test_hidden_messages_are_few():
    """Each of 60 layers could travel alone, hidden; a few messages end as soon."""
    load = workload([400] * 60, [1.0] * 60)
    cost = Linear(0.01, 1e-5)
    messages = optimal.schedule(load, cost)
    assert simulated(load, cost, None, messages) == simulated(load, cost, None, grouped(range(60)))
    assert len(messages) == 2


@pytest.mark.parametrize("net_of_a_seed", NETS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_period_of_halves_is_what_is_simulated_under_slow_down(seed, net_of_a_seed):
    """It is no longer than that of messages that were planned without slow-down."""
    load, cost, slowing = net_of_a_seed(seed)
    load = load.model_copy(update={"update_seconds": 0.0})
    seconds = iteration(load, cost, slowing, "pipelined")
    _, period = pipelined.searched(pipelined.Halves(load, Beside(cost, slowing)), 40_000)
    assert seconds == pytest.approx(period.seconds, rel=1e-9)
    assert period.charged >= pipelined.Halves(load, cost).bound_seconds() * (1 - 1e-12)
    without, _ = pipelined.searched(pipelined.Halves(load, cost), 20_000)
    assert period.charged <= pipelined.Halves(load, Beside(cost, slowing)).period(without).charged * (1 + 1e-12)


def test_604_tensors_are_planned_under_slow_down():
    load, cost, slowing = drawn(1, layers=604)
    for name in ("optimal", "pipelined"):
        messages = schedules.messages(name, load, Beside(cost, slowing), {})
        assert [message.first for message in messages[1:]] == [message.last + 1 for message in messages[:-1]]
        assert (messages[0].first, messages[-1].last) == (0, 603)

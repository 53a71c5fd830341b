"""Schedules against exhaustive search, the paper's algorithm written out word for word, and each other."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings

from gradsync import schedules
from gradsync.costs import Linear
from gradsync.costs.fitted import fit
from gradsync.errors import InputError
from gradsync.schedules import Message, fixed_buckets, mgwfbp, optimal
from tiny_workloads import costs, integer_cost, integer_workload, workload, workloads

INSTANCES = 3000


@functools.cache
def cuts(layers: int) -> np.ndarray:
    """All ways to group layers: True where a message ends.  # (groupings, layers)"""
    numbers = np.arange(2 ** (layers - 1))
    inside = (numbers[:, None] >> np.arange(layers - 1)) & 1 == 1
    return np.hstack([inside, np.ones((len(numbers), 1), bool)])


def exhaustive_seconds(load, cost) -> float:
    """The shortest end of communication over all groupings, every one of them tried."""
    ready, sizes = load.ready_seconds(), load.sizes()
    ends = cuts(len(sizes))
    finish, pending = np.zeros(len(ends)), np.zeros(len(ends))
    for i in range(len(sizes)):
        pending = pending + sizes[i]
        finish = np.where(ends[:, i], np.maximum(finish, ready[i]) + cost.seconds(pending), finish)
        pending = np.where(ends[:, i], 0.0, pending)
    return float(finish.min())


def end_seconds(load, cost, messages) -> float:
    """End of the last of these messages, sent one after the other."""
    ready, sizes = load.ready_seconds(), load.sizes()
    finish = 0.0
    for message in messages:
        start = ready[-1] if message.after_backward else ready[message.last]
        finish = max(finish, start) + cost.seconds(sizes[message.first : message.last + 1].sum())
    return float(finish)


def seconds_of(name, load, cost, **options) -> float:
    return end_seconds(load, cost, schedules.messages(name, load, cost, options))


def algorithm_1(load, a, b) -> set[int]:
    """Algorithm 1 as corrected (MG-E01 to MG-E06), all start times computed anew after each merge: O(L^2).

    Gives the merged-gradient layers, 1 next to the input.
    """
    L = len(load.layers)  # noqa: N806
    p = dict(zip(range(L, 0, -1), load.sizes(), strict=True))  # bytes, not parameters
    tb = {k: layer.backward_seconds for k, layer in zip(range(L, 0, -1), load.layers, strict=True)}
    tc = {k: a + b * p[k] for k in p}
    tau_b = {L: load.forward_seconds}
    for k in range(L - 1, -1, -1):
        tau_b[k] = tau_b[k + 1] + tb[k + 1]

    def comm_start():
        tau_c = {L: tau_b[L] + tb[L]}
        for k in range(L - 1, 0, -1):
            tau_c[k] = max(tau_c[k + 1] + tc[k + 1], tau_b[k] + tb[k])
        return tau_c

    tau_c, merged = comm_start(), set()
    for k in range(L, 1, -1):
        if tau_b[k - 2] - tau_c[k] < a:
            tc[k] = 0.0
            p[k - 1] += p[k]
            tc[k - 1] = a + b * p[k - 1]
            tau_c = comm_start()
            merged.add(k)
    return merged


def merged_layers(load, messages) -> set[int]:
    lasts = {message.last for message in messages}
    return {len(load.layers) - i for i in range(len(load.layers)) if i not in lasts}


def test_optimal_equals_exhaustive_search():
    rng = np.random.default_rng(1)
    suboptimal = 0
    for _ in range(INSTANCES):
        load, cost = integer_workload(rng, int(rng.integers(1, 11))), integer_cost(rng)
        best = exhaustive_seconds(load, cost)
        assert seconds_of("optimal", load, cost) == best
        greedy = seconds_of("mgwfbp", load, cost)
        assert greedy >= best
        suboptimal += greedy > best
    assert suboptimal > INSTANCES / 20  # Theorem 1 does not hold (MG-E09), and these instances show it


def test_optimal_equals_exhaustive_search_on_costs_that_are_no_line():
    rng = np.random.default_rng(2)
    sizes = np.arange(1, 201, 3)
    for _ in range(20):
        jump = int(rng.integers(10, 60))
        times = np.where(sizes < jump, 2 + 0.5 * sizes, 9 + 0.2 * sizes)
        cost = fit(sizes, times)
        for _ in range(20):
            load = integer_workload(rng, int(rng.integers(1, 9)))
            assert seconds_of("optimal", load, cost) == pytest.approx(exhaustive_seconds(load, cost), rel=1e-12)


def test_mgwfbp_is_algorithm_1():
    rng = np.random.default_rng(3)
    for _ in range(INSTANCES):
        load, cost = integer_workload(rng, int(rng.integers(1, 15))), integer_cost(rng)
        assert merged_layers(load, mgwfbp.schedule(load, cost)) == algorithm_1(load, cost.a, cost.b)


def test_the_counterexample_to_theorem_1():
    """MG-E09: layers in backward order, so layer 3 first."""
    load = workload([12, 2, 10], [5.0, 4.0, 7.0])
    cost = Linear(8.0, 1.0)
    seconds = {name: seconds_of(name, load, cost) for name in ("mgwfbp", "optimal", "wfbp", "single")}
    assert seconds == {"mgwfbp": 48.0, "optimal": 45.0, "wfbp": 53.0, "single": 48.0}
    assert merged_layers(load, mgwfbp.schedule(load, cost)) == {2, 3}
    assert merged_layers(load, optimal.schedule(load, cost)) == {2}
    assert exhaustive_seconds(load, cost) == 45.0


@given(load=workloads(), cost=costs)
def test_the_order_of_schedules_on_a_line(load, cost):
    """optimal <= mgwfbp <= wfbp and single; wfbp <= naive."""
    seconds = {name: seconds_of(name, load, cost) for name in ("optimal", "mgwfbp", "wfbp", "single", "naive")}
    more = 1 + 1e-12
    assert seconds["optimal"] <= min(seconds.values()) * more
    assert seconds["mgwfbp"] <= seconds["wfbp"] * more
    assert seconds["mgwfbp"] <= seconds["single"] * more
    assert seconds["wfbp"] <= seconds["naive"] * more


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_every_schedule_sends_every_layer_once(load, cost):
    for name in schedules.names():
        messages = schedules.messages(name, load, cost, {})
        if name == "priority":  # in an order of its own: its tests
            messages = sorted(messages, key=lambda message: (message.first, message.part))
        # of a message that is split, the first piece stands for all, which follow one another
        layers = [i for message in messages if not message.part[0] for i in range(message.first, message.last + 1)]
        assert layers == list(range(len(load.layers)))
        pieces = [
            (index, message.part[1]) for message in messages if not message.part[0] for index in range(message.part[1])
        ]
        assert [message.part for message in messages] == pieces


def test_mgwfbp_on_a_fitted_cost():
    """The gain of a merge is what the fit says; a fit of points on a line plans like that line."""
    rng = np.random.default_rng(4)
    sizes = np.arange(1, 301, 3)
    line = Linear(6.0, 0.5)
    fitted = fit(sizes, line.seconds(sizes))
    jumps = fit(sizes, np.where(sizes < 20, 1 + 0.5 * sizes, 30 + 0.1 * sizes))
    worse = 0
    for _ in range(300):
        load = integer_workload(rng, int(rng.integers(1, 10)))
        # halves keep the test of Eq. 27 away from ties, which rounding in the fit could turn
        load = workload([2 * layer.bytes for layer in load.layers], [t.backward_seconds + 0.3 for t in load.layers])
        assert mgwfbp.schedule(load, fitted) == mgwfbp.schedule(load, line)
        best, greedy = (seconds_of(name, load, jumps) for name in ("optimal", "mgwfbp"))
        assert greedy >= best * (1 - 1e-12)
        worse += greedy > best * (1 + 1e-9)
    assert worse > 0


def test_algorithm_1_as_printed_differs():
    rng = np.random.default_rng(5)
    printed_otherwise = slower = 0
    for _ in range(300):
        load, cost = integer_workload(rng, int(rng.integers(2, 9))), integer_cost(rng)
        ours, printed = (mgwfbp.schedule(load, cost, as_printed=flag) for flag in (False, True))
        printed_otherwise += ours != printed
        slower += end_seconds(load, cost, printed) > end_seconds(load, cost, ours)
    assert printed_otherwise > 0
    assert slower > 0


def groups(messages) -> list[tuple[int, int]]:
    assert not any(message.after_backward for message in messages)
    return [(message.first, message.last) for message in messages]


def lasts_of(messages) -> list[int]:
    return [message.last for message in messages]


def test_algorithm_1_as_printed_takes_the_last_layers_for_ready_at_once():
    """a = 2, b = 0.1, L = 5. Gradients are there at 1, 11, 12, 13 and 33; tau_b[1] = tau_b[0] = 0 as printed.

    Layer 5: 11 - 1 is no less than a. Layer 4: 12 - 11 < a. Layer 3 (tau_c = 12) and layer 2 (13) are held against
    0 where it should be 13 and 33.
    """
    load, cost = workload([40] * 5, [1.0, 10.0, 1.0, 1.0, 20.0]), Linear(2.0, 0.1)
    assert lasts_of(mgwfbp.schedule(load, cost, as_printed=True)) == [0, 4]
    assert lasts_of(mgwfbp.schedule(load, cost)) == [0, 3, 4]


def test_algorithm_1_as_printed_takes_parameters_for_bytes():
    """Layer 5 has 100 parameters: T = 12 s, so that layer 4 starts at 13; 16 - 13 is no less than a. Of bytes, T = 42.

    From 16 on layer 3 is held against 0. By hand with bytes: layer 4 starts at 43 and is merged.
    """
    load, cost = workload([400, 40, 40, 40, 40], [1.0, 5.0, 10.0, 1.0, 1.0]), Linear(2.0, 0.1)
    assert lasts_of(mgwfbp.schedule(load, cost, as_printed=True)) == [0, 1, 4]
    assert lasts_of(mgwfbp.schedule(load, cost)) == [0, 4]


def test_a_layer_merged_as_printed_makes_the_next_one_longer():
    """Layers 6 to 1, a = 2, b = 0.1, ready at 1, 2, 6, 20. Layer 6 is merged into 5: 30 parameters, 5 s from 2 to 7.

    Layer 4 waits until then, and is hidden: 20 - 7 is no less than a. Layer 3 from 20 on is held against 0.
    """
    load, cost = workload([80, 40, 40, 40, 40, 40], [1.0, 1.0, 4.0, 14.0, 1.0, 1.0]), Linear(2.0, 0.1)
    assert lasts_of(mgwfbp.schedule(load, cost, as_printed=True)) == [1, 2, 5]
    longer = Linear(2.0, 0.6)  # 20 s from 2 to 22: layer 4 starts after layer 3 is there
    assert lasts_of(mgwfbp.schedule(load, longer, as_printed=True)) == [1, 5]


@pytest.mark.parametrize("options", [{"bucket_bytes": 0}, {"first_bucket_bytes": 0}, {"first_bucket_bytes": -1}])
def test_buckets_of_nothing_are_refused(options):
    with pytest.raises(InputError, match=r"fixed_buckets: bucket_bytes=.*: at least 1"):
        schedules.messages("fixed_buckets", workload([4], [1.0]), Linear(1.0, 1.0), options)
    assert schedules.messages("fixed_buckets", workload([4], [1.0]), Linear(1.0, 1.0), dict.fromkeys(options, 1))


def test_buckets_close_with_the_gradient_that_fills_them_as_in_ddp():
    load = workload([40, 70, 100, 150, 60, 300, 8], [1.0] * 7)
    buckets = fixed_buckets.schedule(load, Linear(0, 1), bucket_bytes=200, first_bucket_bytes=100)
    assert groups(buckets) == [(0, 1), (2, 3), (4, 5), (6, 6)]  # 110 >= 100, 250 >= 200, 360 >= 200, the rest


def test_buckets_never_exceed_their_size_as_in_horovod():
    load = workload([40, 70, 100, 150, 60, 300, 8], [1.0] * 7)
    buckets = fixed_buckets.schedule(load, Linear(0, 1), bucket_bytes=200, first_bucket_bytes=200, may_exceed=False)
    assert groups(buckets) == [(0, 1), (2, 2), (3, 3), (4, 4), (5, 5), (6, 6)]  # 110, 100, 150, 60, 300 > 200 alone, 8
    exact = fixed_buckets.schedule(load, Linear(0, 1), bucket_bytes=210, first_bucket_bytes=210, may_exceed=False)
    assert groups(exact) == [(0, 2), (3, 4), (5, 5), (6, 6)]  # 210 fits, and then 210 again
    small = fixed_buckets.schedule(load, Linear(0, 1), bucket_bytes=200, first_bucket_bytes=50, may_exceed=False)
    assert groups(small) == [(0, 0), (1, 2), (3, 3), (4, 4), (5, 5), (6, 6)]  # only the first is held to 50


@given(load=workloads(), cost=costs)
@settings(max_examples=60)
def test_horovods_buckets_hold_more_than_their_size_only_for_one_gradient(load, cost):
    limit = 4096
    options = {"bucket_bytes": limit, "first_bucket_bytes": limit, "may_exceed": False}
    for message in schedules.messages("fixed_buckets", load, cost, options):
        inside = load.sizes()[message.first : message.last + 1].sum()
        assert inside <= limit or message.first == message.last


def test_what_naive_wfbp_and_single_send():
    load, cost = workload([4, 8, 12], [1.0, 1.0, 1.0]), Linear(1, 1)
    assert schedules.get("wfbp")(load, cost) == (Message(0, 0), Message(1, 1), Message(2, 2))
    assert schedules.get("single")(load, cost) == (Message(0, 2),)
    assert [message.after_backward for message in schedules.get("naive")(load, cost)] == [True] * 3


def test_wfbp_deals_messages_over_lanes_in_turn():
    load, cost = workload([4, 8, 12, 16], [1.0] * 4), Linear(1, 1)
    messages = schedules.messages("wfbp", load, cost, {"lanes": 3})
    assert [message.lane for message in messages] == ["network0", "network1", "network2", "network0"]
    assert (
        groups(messages) == groups(schedules.messages("wfbp", load, cost, {"lanes": 1})) == [(i, i) for i in range(4)]
    )
    assert {message.lane for message in schedules.messages("wfbp", load, cost, {})} == {schedules.DEFAULT_LANE}


def test_a_new_file_is_a_new_schedule(tmp_path, monkeypatch):
    (tmp_path / "pairs.py").write_text(
        "from gradsync.schedules import grouped\n\n\n"
        "def schedule(workload, cost, *, size: int = 2):\n"
        "    return grouped([*range(size - 1, len(workload.layers) - 1, size), len(workload.layers) - 1])\n"
    )
    (tmp_path / "_private.py").write_text("")
    known = schedules.names()
    monkeypatch.setattr(schedules, "__path__", [*schedules.__path__, str(tmp_path)])
    assert schedules.names() == sorted([*known, "pairs"])
    assert schedules.options("pairs") == {"size": 2}
    load = workload([4] * 5, [1.0] * 5)
    assert groups(schedules.messages("pairs", load, Linear(1, 1), {})) == [(0, 1), (2, 3), (4, 4)]
    assert groups(schedules.messages("pairs", load, Linear(1, 1), {"size": 3})) == [(0, 2), (3, 4)]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("fastest", {}, "schedule 'fastest' does not exist; there are: ascwfbp, dear, fixed_buckets, kway"),
        ("wfbp", {"size": 3}, "schedule 'wfbp' has no option 'size'; it has: lanes=1"),
        ("mgwfbp", {"as_printed": "yes"}, "'yes' is not a bool"),
        ("fixed_buckets", {"bucket_bytes": True}, "True is not a int"),
        ("fixed_buckets", {"bucket_bytes": 0}, "at least 1"),
    ],
)
def test_bad_names_and_options_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        schedules.messages(name, workload([4], [1.0]), Linear(1, 1), options)

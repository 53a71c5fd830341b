"""ASC-WFBP's types of layers, worked out by hand, against the paper's theorem, model and errata."""

import numpy as np
import pytest
from hypothesis import given, settings

from gradsync import schedules
from gradsync.costs import Linear
from gradsync.costs.contention import Contended
from gradsync.costs.fitted import fit
from gradsync.errors import InputError
from gradsync.papers.ascwfbp import pairwise_model
from gradsync.schedules import Message, ascwfbp, mgwfbp
from gradsync.schedules.ascwfbp import RULES, Kind
from tiny_workloads import costs, integer_cost, integer_workload, workload, workloads

N, M, S = Kind.NORMAL, Kind.MERGED, Kind.SIMULTANEOUS
LINE = Linear(2.0, 1.0)
GAMMA = 1.5


def planned(sizes, backward, gamma=GAMMA, line=LINE, **options):
    """Types, messages, and start and end of each by the paper's model."""
    load = workload(sizes, backward)
    kinds = ascwfbp.kinds(load, line, gamma, **options)
    times = [(one.start, one.end) for one in ascwfbp.timed(load, line, kinds, gamma)]
    return kinds, schedules.messages("ascwfbp", load, line, {"gamma": gamma, **options}), times


def test_a_layer_whose_message_is_hidden_is_normal():
    # ready 1, 11. Layer 2: Q1, 1 + (2 + 3) = 6 <= 11
    kinds, messages, times = planned([3, 4], [1.0, 10.0])
    assert kinds == [N, S]
    assert messages == (Message(0, 0, "network0"), Message(1, 1, "network1"))
    assert times == [(1, 6), (11, 17)]


def test_a_layer_that_the_next_one_soon_follows_is_merged():
    # ready 1, 2. Layer 2: not Q1, 6 > 2; Q2, 2 < 1 + 2; not Q3, 6 > 2
    kinds, messages, times = planned([3, 4], [1.0, 1.0])
    assert kinds == [M, S]
    assert messages == (Message(0, 1),)
    assert times == [(2, 11)]  # 2 + 7


def test_a_layer_that_the_next_one_follows_late_is_simultaneous():
    # ready 1, 5. Layer 2: not Q1, 6 > 5; not Q2, 5 >= 1 + 2
    kinds, messages, times = planned([3, 4], [1.0, 4.0])
    assert kinds == [S, S]
    assert messages == (Message(0, 0, "network0"), Message(1, 1, "network1"))
    # at 5 the first has 3 (1 - 4/5) = 0.6 bytes to go: both take 0.5 x 0.6 = 0.3 longer
    np.testing.assert_allclose(times, [(1, 6.3), (5, 11.3)])


def test_a_normal_layer_queues_behind_the_message_before():
    # ready 1, 3, 23. Layer 3: not Q1, 13 > 3; not Q2, 3 >= 1 + 2. Layer 2: tau_c = 13; Q1, 13 + 4 = 17 <= 23
    kinds, messages, times = planned([10, 2, 3], [1.0, 2.0, 20.0])
    assert kinds == [S, N, S]
    assert messages == (Message(0, 0, "network0"), Message(1, 1, "network1", after=(0,)), Message(2, 2, "network0"))
    assert times == [(1, 13), (13, 17), (23, 28)]


def test_a_layer_in_a_queue_is_merged_rather_than_simultaneous():
    # ready 1, 5, 6. Layer 3 as above: 13 > 5, 5 >= 3. Layer 2: tau_c = 13; not Q1; Q2, 6 < 13 + 2; Q3 not:
    # at 5 the first has 10 (1 - 4/12) = 6.67 to go, the penalty is 3.33, and 5 + 12 + 3.33 > 6
    kinds, messages, times = planned([10, 10, 1], [1.0, 4.0, 1.0])
    assert kinds == [S, M, S]
    assert messages == (Message(0, 0, "network0"), Message(1, 2, "network1"))
    # at 6 the first has 10 (1 - 5/12) = 35/6 to go: 35/12 longer
    np.testing.assert_allclose(times, [(1, 13 + 35 / 12), (6, 6 + 13 + 35 / 12)])


def test_a_short_layer_beside_a_long_one_is_simultaneous():
    # ready 1, 8, 30. Layer 3: 43 > 8, 8 >= 3. Layer 2: tau_c = 43; not Q1, 46 > 30; Q2, 30 < 43 + 2; Q3:
    # it overlaps with its 1 byte (not with the 33 that the first has to go): 8 + 3 + 0.5 = 11.5 < 30
    kinds, _, times = planned([40, 1, 4], [1.0, 7.0, 22.0])
    assert kinds == [S, S, S]
    # the last overlaps with 4 of the 40 (1 - 29/42) = 12.4 bytes to go: 2 longer, both
    np.testing.assert_allclose(times, [(1, 43 + 0.5 + 2), (8, 11.5), (30, 38)])


def test_never_more_than_two_messages_are_under_way():
    load = workload([40, 8, 4], [1.0, 7.0, 3.0])
    sent = ascwfbp.timed(load, LINE, [S, S, S], GAMMA)
    # ready 1, 8, 11. At 8: 8 bytes overlap, 4 longer: 22. The third waits for that, then 4 bytes overlap: 2 longer
    assert [(one.start, one.end, one.lane) for one in sent] == [(1, 43 + 4 + 2, 0), (8, 22, 1), (22, 30, 1)]


def test_the_counterexamples_to_theorem_1():
    """ASC-E17: pi_WFBP 22, pi_MG 21.5 (21 where Q4 is false), pi_SC 17.6; the theorem merges."""
    line = Linear(1.0, 1.0)
    for last, merged in ((8.5, 21.5), (5.0, 7 + 11 + 0.5 * 2.7)):
        sizes, backward = [9, 9, 1], [0.0, 2.0, last]
        kinds, _, times = planned(sizes, backward, line=line)
        assert kinds == [S, M, S]
        # Q4 true: alone on the link at 10.5. Q4 false: at 7 beside the first, which has 9 (1 - 7/10) = 2.7 bytes to go
        assert max(end for _, end in times) == pytest.approx(merged)
        kinds, _, times = planned(sizes, backward, line=line, rule="argmin")
        assert kinds == [S, S, S]
        # at 2 the first has 7.2 to go: 3.6 longer, 13.6 and 15.6; the last waits for a lane until 13.6, and then the
        # second is past what Eq. 12 counts as its transfer. pi_SC takes it to wait for the second: 15.6 + 2
        np.testing.assert_allclose(times, [(0, 13.6), (2, 15.6), (13.6, 15.6)])


def collapsed(load, line) -> list[Kind]:
    """What the printed Algorithm 1 comes down to for 1 < gamma <= 2 (ASC-E04)."""
    tb, m = [layer.backward_seconds for layer in load.layers], list(load.sizes())
    kinds = []
    for i in range(len(m) - 1):
        if tb[i] + line.a + line.b * m[i] <= tb[i + 1]:
            kinds.append(N)
        elif tb[i + 1] < line.a:
            kinds.append(M)
            m[i + 1] += m[i]
        else:
            kinds.append(S)
    return [*kinds, S]


def test_the_printed_algorithm_is_what_an_option_asks_for():
    rng = np.random.default_rng(5)
    differs = 0
    for _ in range(100):
        load, line = integer_workload(rng, 6), integer_cost(rng)
        ours, printed = (
            schedules.messages("ascwfbp", load, line, {"gamma": GAMMA, "as_printed": flag}) for flag in (False, True)
        )
        merged = [i for i, kind in enumerate(ascwfbp.printed_kinds(load, line, GAMMA)) if kind is M]
        assert [i for i in range(6) if i not in {message.last for message in printed}] == merged
        differs += ours != printed
    assert differs


def test_the_printed_algorithm_collapses():
    rng = np.random.default_rng(1)
    otherwise = slower = 0
    for _ in range(5000):
        load, line = integer_workload(rng, int(rng.integers(1, 12))), integer_cost(rng)
        gamma = float(rng.choice([1.25, 1.5, 1.75, 2.0]))
        printed, ours = ascwfbp.printed_kinds(load, line, gamma), ascwfbp.kinds(load, line, gamma)
        assert printed == collapsed(load, line)
        otherwise += printed != ours
        slower += end(load, line, printed, gamma) > end(load, line, ours, gamma)
    assert otherwise > 1500
    assert slower > 20


def end(load, line, kinds, gamma) -> float:
    return max(one.end for one in ascwfbp.timed(load, line, kinds, gamma))


def of_grouping(load, messages) -> list[Kind]:
    lasts = {message.last for message in messages}
    return [N if i in lasts else M for i in range(len(load.layers))]


@given(load=workloads(), cost=costs)
@settings(max_examples=300)
def test_never_worse_than_wfbp_under_its_own_model(load, cost):
    for gamma in (1.0, 1.3, 2.0):
        wfbp = end(load, cost, [N] * len(load.layers), gamma)
        for rule in RULES:
            assert end(load, cost, ascwfbp.kinds(load, cost, gamma, rule), gamma) <= wfbp * (1 + 1e-12)


def test_never_worse_than_wfbp_where_ties_happen():
    rng = np.random.default_rng(2)
    for _ in range(3000):
        load, line = integer_workload(rng, int(rng.integers(1, 15))), integer_cost(rng)
        gamma = float(rng.choice([1.0, 1.5, 2.0]))
        wfbp = end(load, line, [N] * len(load.layers), gamma)
        for rule in RULES:
            assert end(load, line, ascwfbp.kinds(load, line, gamma, rule), gamma) <= wfbp * (1 + 1e-12)


def test_it_seldom_loses_to_mgwfbp_under_its_own_model():
    """It can, as each choice takes the layers to come for sent one by one: here on some nets, by some percent."""
    rng = np.random.default_rng(2)
    over = []
    for _ in range(1500):
        layers = int(rng.integers(10, 41))
        seconds = rng.uniform(0, 2, layers)
        load = workload((4 * rng.integers(1, 5000, layers)).tolist(), seconds.tolist(), forward=1.0)
        b = float(seconds.sum() / load.bytes * rng.lognormal(0, 1))
        line = Linear(float(seconds.mean() * rng.lognormal(-1, 1)), b)
        gamma = float(rng.uniform(1, 2))
        merged = end(load, line, of_grouping(load, mgwfbp.schedule(load, line)), gamma)
        over.append(end(load, line, ascwfbp.kinds(load, line, gamma), gamma) / merged - 1)
    losing = [one for one in over if one > 1e-12]
    assert 0 < len(losing) < 0.01 * len(over)
    assert max(losing) < 0.05
    assert np.median(over) < -0.01


def test_the_papers_model_of_the_messages_agrees():
    """The schedule times its messages as the independent evaluation of a list of messages does."""
    rng = np.random.default_rng(3)
    for _ in range(600):
        load, line = integer_workload(rng, int(rng.integers(1, 12))), integer_cost(rng)
        gamma = float(rng.choice([1.0, 1.5, 2.0]))
        for options in ({}, {"rule": "argmin"}, {"as_printed": True}):
            messages = schedules.messages("ascwfbp", load, line, {"gamma": gamma, **options})
            kinds = (
                ascwfbp.printed_kinds(load, line, gamma)
                if "as_printed" in options
                else ascwfbp.kinds(load, line, gamma, **options)
            )
            ours = ascwfbp.timed(load, line, kinds, gamma)
            theirs = pairwise_model.timed(load, messages, line, gamma)
            np.testing.assert_allclose([one.start for one in ours], theirs.starts)
            np.testing.assert_allclose([one.end for one in ours], theirs.ends)


def test_gamma_is_that_of_the_contention():
    gammas = [ascwfbp.derived_gamma(cost) for cost in (LINE, *(Contended(LINE, c) for c in (1, 1.25, 5 / 3, 2, 4)))]
    assert gammas == pytest.approx([2, 2, 1.6, 1.2, 1, 1])
    # ready 1, 3, 14. Layer 2: tau_c = 13; not Q1, 23 > 14; Q2, 14 < 15; beside the first, of which 10 (1 - 2/12) are
    # to go, its 8 bytes overlap: Q3, 3 + 10 + 8 (gamma - 1) < 14, holds for gamma = 1 and not for 2
    load = workload([10, 8, 1], [1.0, 2.0, 11.0])
    types = {c: ascwfbp.kinds(load, LINE, ascwfbp.derived_gamma(Contended(LINE, c))) for c in (1.0, 2.0)}
    assert types == {1.0: [S, M, S], 2.0: [S, S, S]}
    given_gamma = schedules.messages("ascwfbp", load, LINE, {"gamma": 1.0})
    assert given_gamma == schedules.messages("ascwfbp", load, Contended(LINE, 2.0), {})


def test_on_a_cost_that_is_no_line():
    """A fit of points on a line plans like that line; a merge saves what the fit says it does."""
    rng = np.random.default_rng(4)
    sizes = np.arange(1, 301, 3)
    fitted = fit(sizes, Linear(6.0, 0.5).seconds(sizes))
    for _ in range(200):
        load = integer_workload(rng, int(rng.integers(1, 10)))
        load = workload([2 * layer.bytes for layer in load.layers], [t.backward_seconds + 0.3 for t in load.layers])
        for options in ({}, {"rule": "argmin"}, {"as_printed": True}):
            options = {"gamma": 1.5, **options}
            of_fit, of_line = (
                schedules.messages("ascwfbp", load, cost, options) for cost in (fitted, Linear(6.0, 0.5))
            )
            assert [m[:2] for m in of_fit] == [m[:2] for m in of_line]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gamma": 0.9}, "gamma 0.9: must be between 1 and the number of lanes, 2"),
        ({"gamma": 2.5}, "gamma 2.5: must be between 1 and the number of lanes, 2"),
        ({"gamma": float("nan")}, "gamma nan"),
        ({"gamma": -1.0}, "gamma -1"),
        ({"rule": "best"}, "rule 'best' does not exist; there are: theorem, argmin"),
        ({"rule": "argmin", "as_printed": True}, "as printed there is one rule"),
        ({"lanes": 3}, "has no option 'lanes'"),
    ],
)
def test_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        schedules.messages("ascwfbp", workload([4, 4], [1.0, 1.0]), LINE, options)

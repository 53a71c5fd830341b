"""Numbers within intervals: pairs of one launch are taken pair by pair, too few repeats decide nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from gradsync.claims.expressions import Missing, Truth, Walk
from gradsync.statistics.intervals import median_interval
from gradsync.statistics.spans import Span

# six moments of a machine that falls asleep now and then, and a contender that is always 5 % slower
MOMENTS = [1.0, 3.0, 1.1, 0.9, 2.0, 1.4]
SLOWER = [1.05 * each for each in MOMENTS]


def check(text: str, cells: Mapping[str, Span | float]) -> Truth:
    return Walk(lambda column, keys: cells[column]).run(text)


def launched(launch: str = "a", **samples: Sequence[float]) -> dict[str, Span]:
    return {name: Span.repeated(each, launch) for name, each in samples.items()}


def test_pairs_tell_what_two_intervals_do_not():
    cells = launched(x=SLOWER, y=MOMENTS)
    assert cells["x"].low < cells["y"].high
    truth = check('value("x") <= value("y")', cells)
    assert truth.known
    assert (truth.least, truth.margin, truth.most) == pytest.approx((-0.05, -0.05, -0.05))
    assert check('isclose(value("x") / value("y"), 1.05, 1e-9)', cells).known
    assert check('isclose(value("x"), 1.05 * value("y"), 1e-9)', cells).known
    truth = check('1 - value("y") / value("x") > 0.04', cells)
    assert truth.known
    assert truth.margin == pytest.approx((1 - 1 / 1.05) / 0.04 - 1)


def test_of_different_launches_there_are_no_pairs():
    for of_other in (launched("b", y=MOMENTS), launched("a", y=[*MOMENTS, 1.0]), launched("", y=MOMENTS)):
        cells = {**launched("a" if of_other["y"].launch else "", x=SLOWER), **of_other}
        truth = check('value("x") <= value("y")', cells)
        assert not truth.known
        assert (truth.least, truth.most) == pytest.approx((1 - 3.15 / 0.9, 1 - 0.945 / 3.0))


def test_an_interval_without_repeats_takes_part_in_arithmetic():
    cells = {**launched(x=MOMENTS), "y": Span(2.0, 1.5, 2.5)}
    truth = check('value("x") * value("y") < 9', cells)
    assert (truth.least, truth.most) == pytest.approx((1 - 3.0 * 2.5 / 9, 1 - 0.9 * 1.5 / 9))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_fewer_than_six_pairs_decide_nothing(n):
    cells = launched(x=SLOWER[:n], y=[each / 9 for each in MOMENTS[:n]])
    for text in ('value("x") > value("y")', 'value("x") < 1e9', 'value("x") / value("y") < 1e9', 'value("x") != 0'):
        truth = check(text, cells)
        assert not truth.known
        assert (truth.least, truth.most) == (-math.inf, math.inf)
        assert truth.margin > 0  # of the values, to be seen


def test_six_equal_pairs_decide():
    truth = check('value("x") == value("y")', launched(x=[2.0] * 6, y=[2.0] * 6))
    assert truth.known
    assert truth.margin == 0


def test_what_is_not_known_leaves_open_what_it_would_decide_only():
    cells = {"few": Span.unknown(1.0), "sure": 1.0}
    assert not check('value("few") <= 2 and value("sure") <= 2', cells).known
    refuted = check('value("few") <= 2 and value("sure") >= 2', cells)
    assert refuted.known
    assert refuted.margin < 0
    assert check('value("few") <= 2 or value("sure") <= 2', cells).known
    assert not check('value("few") <= 2 or value("sure") >= 2', cells).known
    assert not check('not value("few") <= 2', cells).known
    assert not check('value("few") - value("few") <= 2', cells).known  # its interval is everything
    assert check('min(value("few"), value("sure")) <= 2', cells).known  # the sure one is there
    assert not check('max(value("few"), value("sure")) <= 2', cells).known


def test_a_number_that_may_be_zero_divides_nothing():
    for below in ([-1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.0, *MOMENTS]):
        with pytest.raises(Missing, match="what divides may be 0"):
            check('value("x") / value("y") < 1', launched(x=[1.0] * 7, y=below))
    with pytest.raises(Missing, match="what divides may be 0"):
        check('1 / value("y") < 1', {"y": Span(1.0, 0.0, 2.0)})
    # compared, pairs of both signs are no ratios, and the intervals decide
    truth = check('value("x") < value("y")', launched(x=[-3.0] * 7, y=[-1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]))
    assert truth.known
    assert truth.least > 0


def test_pairs_below_zero_are_compared_too():
    cells = launched(x=[-each for each in SLOWER], y=[-each for each in MOMENTS])
    for text, margin in (('value("x") < value("y")', 0.05), ('value("x") > value("y")', -0.05)):
        truth = check(text, cells)
        assert truth.known
        assert truth.margin == pytest.approx(margin)


def random_spans(rng: np.random.Generator, **medians: float) -> dict[str, Span]:
    """Twelve pairs, each disturbed as a whole and by itself."""
    moment = rng.lognormal(0, 0.3, 12)
    return launched(**{name: median * moment * rng.lognormal(0, 0.02, 12) for name, median in medians.items()})


@pytest.mark.parametrize(
    ("text", "medians", "holds"),
    [
        ('value("x") <= 1.05 * min(value("y"), value("z"))', {"x": 1, "y": 1, "z": 1}, True),
        ('1.03 * max(value("y"), value("z")) >= value("x")', {"x": 1, "y": 1, "z": 0.9}, True),
        ('value("x") > max(value("y"), value("z"))', {"x": 1, "y": 1.03, "z": 0.5}, False),
        ('min(value("x"), value("z")) < value("y")', {"x": 1, "y": 1.03, "z": 2}, True),
        ('isclose(value("x") / value("y"), 1.2, 0.1)', {"x": 1.2, "y": 1}, True),
        ('isclose(value("x") / value("y"), 1.2, 0.02)', {"x": 1.26, "y": 1}, False),
        ('isclose(value("x"), value("y"), 0.05)', {"x": 1, "y": 1}, True),
    ],
)
def test_what_is_decided_is_right_and_mostly_something_is(text, medians, holds):
    rng = np.random.default_rng(3)
    truths = [check(text, random_spans(rng, **medians)) for _ in range(200)]
    wrong = [truth for truth in truths if truth.known and (truth.margin >= 0) != holds]
    assert len(wrong) <= 0.05 * 200
    assert sum(truth.known for truth in truths) > 0.6 * 200


def test_alike_contenders_are_not_refuted_by_the_smallest_of_their_noise():
    """Pair by pair the smallest of three is below a fourth in most pairs, whoever is the faster one."""
    rng = np.random.default_rng(5)
    text, refuted, pairwise = 'value("x") <= min(value("y"), value("z"), value("w"))', 0, 0
    for _ in range(200):
        cells = random_spans(rng, x=1, y=1, z=1, w=1)
        truth = check(text, cells)
        refuted += truth.known and truth.margin < 0
        smallest = np.min([cells[name].samples for name in "yzw"], axis=0)
        pairwise += median_interval(cells["x"].samples / smallest)[0] > 1
    assert refuted <= 0.12 * 200  # three comparisons, 2.5 % each on that side
    assert pairwise > 0.3 * 200


def test_exact_numbers_are_compared_as_ever():
    walk = Walk(lambda column, keys: 3.0)
    truth = walk.run('value("a") <= 2 * min(value("b"), 1) or value("a") > max(value("b"), 1)')
    assert truth.margin == pytest.approx(-1e-16, abs=1e-15)
    assert truth.least == truth.margin == truth.most
    assert list(walk.sides.values()) == [(3.0, 2.0), (3.0, 3.0)]


def test_inputs_are_those_of_each_comparison():
    walk = Walk(lambda column, keys: Span.exactly(0.0, inputs=int(keys.get("n", 1))))
    walk.run('all(value("losing", n=k) + value("other") == 0 for k in [400, 70])')
    assert list(walk.inputs.values()) == [400, 70]

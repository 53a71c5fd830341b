"""Intervals: never of too few repeats, right about as often as their confidence, and words if there is none."""

from __future__ import annotations

from itertools import combinations
from math import comb, inf, nan

import numpy as np
import pytest

from gradsync.statistics.intervals import NONE, jackknife, median_interval, repeats_needed, shown


def test_the_interval_of_the_median_is_that_of_the_binomial():
    """Of six values the median lies between the ends with 1 - 2/64; of fewer no two bound it with 95 %."""
    assert median_interval([5.0, 1.0, 2.0, 9.0, 4.0, 3.0]) == (1.0, 3.5, 9.0)
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(400):
        low, _, high = median_interval(rng.exponential(size=21))
        inside += low <= np.log(2) <= high
    assert 0.93 <= inside / 400 <= 0.995


@pytest.mark.parametrize("n", range(1, 6))
def test_fewer_than_six_values_have_no_interval(n):
    assert median_interval(range(n)) == (None, (n - 1) / 2, None)


def test_equal_values_have_an_interval_of_no_width_from_six_on():
    assert median_interval([2.0] * 6) == (2.0, 2.0, 2.0)
    assert median_interval([2.0] * 5) == (None, 2.0, None)


@pytest.mark.parametrize("values", [[], [1.0] * 6 + [nan], [1.0] * 9 + [inf]])
def test_what_is_not_finite_tells_nothing(values):
    low, middle, high = median_interval(values)
    assert (low, high) == (None, None)
    assert np.isnan(middle)


@pytest.mark.parametrize("confidence", [0.5, 0.8, 0.9, 0.95, 0.975, 0.99])
def test_as_many_repeats_as_are_needed_and_no_fewer(confidence):
    n = repeats_needed(confidence)
    assert 1 - 2 * 0.5**n >= confidence > 1 - 2 * 0.5 ** (n - 1)
    assert median_interval(range(n), confidence) == (0, (n - 1) / 2, n - 1)
    assert median_interval(range(n - 1), confidence)[0] is None
    for more in range(n, 60):  # the narrowest pair of order statistics that holds as much
        low, _, _ = median_interval(range(more), confidence)
        below = [comb(more, k) / 2**more for k in range(more + 1)]
        assert 1 - 2 * sum(below[: int(low) + 1]) >= confidence - 1e-12
        assert 1 - 2 * sum(below[: int(low) + 2]) < confidence


def test_the_repeats_of_95_percent_are_six():
    assert repeats_needed() == 6


def test_a_jackknife_of_means_is_students_interval():
    values = np.array([1.0, 4.0, 2.0, 8.0, 5.0, 7.0, 6.0])
    without = [np.mean(each) for each in combinations(values, len(values) - 1)]
    low, high = jackknife(values.mean(), without)
    half = 2.446912 * values.std(ddof=1) / np.sqrt(7)  # t of 6 degrees of freedom
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), rel=1e-6)


@pytest.mark.parametrize("without", [[], [1.0], [1.0, 2.0, 1.5, 2.5, 3.0], [1.0] * 6 + [nan]])
def test_a_jackknife_of_too_few_tells_nothing(without):
    assert jackknife(1.0, without) == (None, None)


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        ((0.5, 0.25, 0.75), "500.0 (250.0 .. 750.0)"),
        ((0.5, None, None), f"500.0 ({NONE})"),
        ((0.5, nan, nan), f"500.0 ({NONE})"),
        ((0.5, 0.25, None), f"500.0 ({NONE})"),
        ((nan, 0.25, 0.75), "-"),
        ((None, None, None), "-"),
    ],
)
def test_what_people_read(measured, text):
    assert shown(measured, ".1f", 1e3) == text

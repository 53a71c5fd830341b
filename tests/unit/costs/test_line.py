"""The line of measured all-reduces, its intervals and residuals."""

from __future__ import annotations

import numpy as np
import pytest

from gradsync.costs import line
from gradsync.errors import InputError


def test_the_line_of_exact_times_is_found_and_sure():
    sizes, exact = [100, 1000, 10_000], [0.3, 1.2, 10.2]  # 0.2 + 0.001 m
    fitted_line = line.through(sizes, [exact] * 6)
    assert (fitted_line.a_seconds, fitted_line.b_seconds_per_byte) == pytest.approx((0.2, 0.001))
    assert fitted_line.a_interval == pytest.approx((0.2, 0.2))
    assert (fitted_line.mean_residual, fitted_line.worst_residual) == pytest.approx((0, 0), abs=1e-9)
    assert (fitted_line.sweeps, fitted_line.points, fitted_line.from_bytes, fitted_line.to_bytes) == (6, 3, 100, 10_000)
    assert line.through(sizes, [exact] * 5).a_interval is None  # too few sweeps


def test_a_line_of_two_sizes_goes_through_both():
    fitted_line = line.through([10, 20], [[1, 1.5]])
    assert (fitted_line.a_seconds, fitted_line.b_seconds_per_byte) == pytest.approx((0.5, 0.05))


def test_the_interval_of_a_line_is_students_of_the_lines_of_its_sweeps():
    """Each sweep a line of its own, of a = 0.1 .. 0.6: the mean is 0.35, its deviation 0.187 / sqrt(6), t = 2.571."""
    sizes, starts = np.array([100.0, 1000.0]), np.arange(1, 7) / 10
    fitted_line = line.through(sizes, starts[:, None] + 0.01 * sizes)
    half = 2.5706 * starts.std(ddof=1) / np.sqrt(6)
    assert fitted_line.a_interval == pytest.approx((0.35 - half, 0.35 + half), rel=1e-4)
    assert fitted_line.b_interval == pytest.approx((0.01, 0.01), rel=1e-6)


def test_residuals_of_a_line_are_relative_to_what_was_measured():
    """A third point lies twice as high as a + b m: the line is between, and its residuals are those of the formula."""
    sizes, times = np.array([10.0, 20.0, 40.0]), np.array([1.0, 2.0, 8.0])
    fitted_line = line.through(sizes, times)
    residuals = np.abs((fitted_line.a_seconds + fitted_line.b_seconds_per_byte * sizes) / times - 1)
    assert (fitted_line.mean_residual, fitted_line.worst_residual) == pytest.approx((residuals.mean(), residuals.max()))
    assert fitted_line.worst_residual > 0.1


@pytest.mark.parametrize(
    ("sizes", "times"),
    [([10, 10], [1, 1]), ([10, 20], [1, 0]), ([0, 20], [1, 1]), ([10, 20], [1, float("nan")]), ([10], [1])],
)
def test_times_that_no_line_goes_through_are_refused(sizes, times):
    with pytest.raises(InputError, match="a line needs two sizes and positive seconds"):
        line.through(sizes, [times])

"""Model bounds are of the lower ends of the intervals of what was fitted."""

from __future__ import annotations

import numpy as np
import pytest

from bounded_plans import LOAD, plan_of, same
from gradsync.costs import Linear, Network, contention_fit
from gradsync.costs.contention import Contended, largest_capacity
from gradsync.costs.fitted import fit
from gradsync.engine.bounds import model_bound_seconds
from gradsync.errors import InputError


def noisy(seed: int, relative: float = 0.03, a: float = 1e-3, b: float = 1e-8, points: int = 24):
    sizes = np.geomspace(1e4, 1e7, points)
    times = (a + b * sizes) * (1 + relative * np.random.default_rng(seed).standard_normal(points))
    return fit(sizes, times, pieces=1)


def test_the_lower_end_lies_below_the_truth_and_no_further_than_the_noise():
    below = [noisy(seed).least_transfer_seconds(1e9, low=True) <= 1e-8 * 1e9 for seed in range(200)]
    assert np.mean(below) >= 0.95  # of a one-sided 97.5 %
    middle = [noisy(seed).least_transfer_seconds(1e9) <= 1e-8 * 1e9 for seed in range(200)]
    assert 0.3 < np.mean(middle) < 0.7  # what is fitted itself is as often too high
    one = noisy(1)
    assert one.least_transfer_seconds(1e9, low=True) >= 0.9 * one.least_transfer_seconds(1e9)
    assert one.slope_low() < one.slopes[-1]


def test_without_noise_the_lower_end_is_what_was_fitted_and_without_residuals_there_is_none():
    exact = noisy(0, relative=0.0)
    assert exact.least_transfer_seconds(1e9, low=True) == pytest.approx(exact.least_transfer_seconds(1e9), rel=1e-6)
    two = fit([1e4, 1e6], [1e-3, 1e-2])
    assert two.least_transfer_seconds(1e9, low=True) == 0.0
    assert two.interval(1e5) == (0.0, np.inf)
    plan = plan_of()
    assert model_bound_seconds(plan, LOAD, Network({"all_reduce": two})) == same(6.5)


def test_given_lines_are_exact_and_fitted_ones_have_a_lower_end():
    network = Network({"all_reduce": Linear(0.1, 0.02, "fitted", 0.015)})
    assert model_bound_seconds(plan_of(), LOAD, network) == same(3.0 + 0.015 * 1200 + 0.5)
    assert model_bound_seconds(plan_of(), LOAD, Network({"all_reduce": Linear(0.1, 0.02)})) == same(3.0 + 24.0 + 0.5)
    with pytest.raises(InputError, match="lower end of its interval"):
        Linear(0.1, 0.02, b_low=0.03)


def test_a_link_may_carry_as_much_as_its_interval_says():
    alone = Linear(0.0, 0.02)
    network = Network({"all_reduce": Contended(alone, 1.5, 0.0, 2.0)})
    assert model_bound_seconds(plan_of(), LOAD, network) == same(3.0 + 12.0 + 0.5)
    assert largest_capacity(Contended(alone, 1.5)) == 1.5
    assert largest_capacity(alone) == 1.0
    with pytest.raises(InputError, match="lies below it"):
        Contended(alone, 1.5, 0.0, 1.2)
    rng = np.random.default_rng(3)
    sizes = [10_000 * 2**i for i in range(8)]
    one = 1e-3 + 1e-8 * np.array(sizes)
    both = 1e-3 + 2 / 1.5 * (one - 1e-3)
    sweeps = np.stack([one, both]) * (1 + 0.01 * rng.standard_normal((6, 2, 8)))
    fitted = contention_fit.fit(sizes, sweeps)
    assert largest_capacity(fitted.contended()) == fitted.capacity.high > fitted.capacity.value
    assert largest_capacity(contention_fit.fit(sizes, sweeps[:1]).contended()) == np.inf

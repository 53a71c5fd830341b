"""Contention fitted to the times of several all-reduces at once: capacity of the link, host cost, gamma.

T_k(m) is the time of each of k all-reduces of m bytes that start at once, k = 1..K. The model of it, with a = a(m) the
start-up of the cost that is fitted to T_1 (`fitted.py`), h the host's part of it and X the capacity, is

    T_k(m) = a + (k-1) h + max(1, k/X) (T_1(m) - a)

X and h >= 0 are those of least squares, with T_1 as measured, each T_k weighted by its certainty (the standard error of
it and of T_1 over the sweeps, at least a hundredth: small messages on busy cores say little).
gamma_k(m) = (T_k(m) - a) / (T_1(m) - a) is nowhere assumed: it is derived, size by size.

All of it follows from the mean times of the sweeps. Its 95 % intervals are Student's t with the jackknife's deviation:
everything is computed again without each sweep in turn, the start-up too. What no link does (X below 1: several at once
are slower than in turn; a gamma below 1 or above k) is kept as measured, with its interval, and a note says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

import numpy as np

from gradsync.costs import fitted
from gradsync.costs.contention import Contended
from gradsync.statistics.intervals import jackknife

LEAST_ERROR = 0.01  # of a time: what repeats don't show


class Estimate(NamedTuple):
    """A value and its 95 % interval, None of too few sweeps."""

    value: float
    low: float | None = None
    high: float | None = None


class Gamma(NamedTuple):
    """gamma of `lanes` messages of `bytes`; None if T_1 is no longer than its start-up.

    `outside`: the whole interval lies below 1 or above `lanes`.
    """

    lanes: int
    bytes: int
    gamma: Estimate | None
    outside: bool


class Residual(NamedTuple):
    """Seconds of one of `lanes` messages measured (mean of the sweeps), by the model, and model / measured - 1."""

    lanes: int
    bytes: int
    measured: float
    modelled: float
    relative: float


@dataclass(frozen=True)
class Fit:
    """What follows from the points; `notes` are for people: what is no physical value, and what was not measured."""

    alone: fitted.Fitted
    capacity: Estimate
    host_seconds: Estimate
    gammas: tuple[Gamma, ...]
    residuals: tuple[Residual, ...]
    notes: tuple[str, ...]

    @property
    def mean_residual(self) -> float:
        """Mean of |model / measured - 1|."""
        return float(np.mean([abs(each.relative) for each in self.residuals]))

    def contended(self, alone: Any = None) -> Contended:
        """The cost `alone` (None: the one fitted here) on that link; a capacity measured below 1 counts as 1."""
        high = inf if self.capacity.high is None else max(1.0, self.capacity.high)
        return Contended(alone or self.alone, max(1.0, self.capacity.value), self.host_seconds.value, high)


def fit(sizes: Sequence[int], sweeps: np.ndarray, source: str = "") -> Fit:
    """Of T_k(m) by sweep, k - 1 and size (bytes).  # sweeps: (sweeps, K, sizes)

    Raises InputError for fewer than two sizes.
    """
    m, lanes = np.array(sizes, float), sweeps.shape[1]
    mean = sweeps.mean(axis=0)  # (K, sizes)
    count = len(sweeps)
    error = sweeps.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.zeros_like(mean)
    number = np.arange(2, lanes + 1)[:, None]  # of messages
    deviation = np.sqrt(error[1:] ** 2 + (number * error[0]) ** 2 + (LEAST_ERROR * mean[1:]) ** 2)  # (K - 1, sizes)
    model = _Model.of(m, mean, deviation)
    without = [
        _Model.of(m, np.delete(sweeps, i, axis=0).mean(axis=0), deviation) for i in range(count if count > 1 else 0)
    ]
    capacity = _estimate(1 / model.inverse_capacity, [1 / each.inverse_capacity for each in without])
    host = _estimate(model.host, [each.host for each in without])
    residuals, gammas = [], []
    for k in range(2, lanes + 1):
        modelled = model.a + (k - 1) * model.host + max(1.0, k * model.inverse_capacity) * model.transfer
        for i, size in enumerate(sizes):
            measured, predicted = float(mean[k - 1, i]), float(modelled[i])
            residuals.append(Residual(k, size, measured, predicted, predicted / measured - 1))
            gammas.append(_gamma(k, size, float(model.gamma[k - 2, i]), [each.gamma[k - 2, i] for each in without]))
    notes = tuple(_notes(capacity, gammas, lanes))
    return Fit(fitted.fit(m, mean[0], source=source), capacity, host, tuple(gammas), tuple(residuals), notes)


class _Model(NamedTuple):
    """Of one table of times: a and T_1 - a by size, 1/X, h, gamma, nan if there is none.  # gamma: (K - 1, sizes)"""

    a: np.ndarray
    transfer: np.ndarray
    inverse_capacity: float
    host: float
    gamma: np.ndarray

    @staticmethod
    def of(m: np.ndarray, times: np.ndarray, deviation: np.ndarray) -> _Model:  # times: (K, sizes)
        a = np.asarray(fitted.fit(m, times[0]).startup_seconds(m))
        transfer = np.maximum(times[0] - a, 0.0)
        gamma = (times[1:] - a) / np.where(transfer > 0, transfer, np.nan)
        return _Model(a, transfer, *_capacity_and_host(a, transfer, times[1:], deviation), gamma)


def _estimate(value: float, without: Sequence[float]) -> Estimate:
    """The jackknife's interval: `without` has the value without each of the sweeps."""
    return Estimate(value, *jackknife(value, without))


def _capacity_and_host(
    a: np.ndarray, transfer: np.ndarray, several: np.ndarray, deviation: np.ndarray
) -> tuple[float, float]:
    """(1/X, h) of least squares; X is at most K, since larger ones can't be seen.  # both arrays: (K - 1, sizes)

    max(1, k/X) has a kink at each X = k and is linear in 1/X between them: the best of the pieces counts.
    """
    from scipy.optimize import lsq_linear

    k = np.arange(2, len(several) + 2)[:, None]  # (K - 1, 1)
    most = int(k[-1, 0])
    best = inf, 1.0, 0.0
    for low, high in pairwise([*(1 / x for x in range(most, 0, -1)), inf]):
        shared = k * (low + min(high, 2 * low)) / 2 > 1  # (K - 1, 1): so many messages fill the link there
        slope = np.where(shared, k * transfer, 0.0)
        constant = a + np.where(shared, 0.0, transfer)
        host = np.broadcast_to(k - 1.0, several.shape)
        # h is counted in the shortest times, so that both columns are of one order
        unit = max(float(several.min()), 1e-12)
        columns = np.stack([(slope / deviation).ravel(), (unit * host / deviation).ravel()], 1)
        solution = lsq_linear(columns, ((several - constant) / deviation).ravel(), bounds=([low, 0.0], [high, inf]))
        if solution.cost < best[0]:
            best = float(solution.cost), float(solution.x[0]), float(solution.x[1]) * unit
    return best[1:]


def _gamma(lanes: int, size: int, value: float, without: Sequence[float]) -> Gamma:
    if np.isnan([value, *without]).any():
        return Gamma(lanes, size, None, False)
    gamma = _estimate(value, without)
    outside = gamma.low is not None and gamma.high is not None and (gamma.high < 1 or gamma.low > lanes)
    return Gamma(lanes, size, gamma, outside)


def _notes(capacity: Estimate, gammas: Sequence[Gamma], lanes: int) -> list[str]:
    notes = []
    between = "" if capacity.low is None else f" ({capacity.low:.3g} to {capacity.high:.3g})"
    if capacity.value < 1:
        notes.append(
            f"capacity {capacity.value:.3g}{between} is below 1: messages at once were slower than in turn, which no "
            "link does (cores do): kept as measured, planned with 1"
        )
    if capacity.value > 0.99 * lanes:
        notes.append(
            f"all {lanes} messages had the speed of one alone: the capacity is {lanes} or more: measure with more lanes"
        )
    if outside := [each for each in gammas if each.outside]:
        points = ", ".join(f"{each.lanes} x {each.bytes} B" for each in outside)
        notes.append(f"gamma below 1 or above the number of messages at {points}: kept as measured")
    return notes

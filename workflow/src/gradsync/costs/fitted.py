"""A cost fitted to measured points: piecewise linear, with its residual and confidence interval.

Real all-reduce times are not one straight line (switches of protocol make them jump), so the fit finds the pieces by
dynamic programming: least relative squares in each piece, and a Bayesian information criterion for their number.
Outside the measured range the first and last pieces are extended, which is never silent: `extrapolates` says so and
everything that plans with a fit reports it.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from gradsync.costs import MessageCost
from gradsync.errors import InputError
from gradsync.files import reading

SHORTEST_PIECE = 4  # distinct sizes; a line through fewer would follow the noise
LAST_PIECE_SPAN = 2.0  # largest over smallest size of the last piece, at least


@dataclass(frozen=True)
class Fitted:
    """T(m) by pieces: piece i holds for sizes up to `bounds[i]` bytes, T = intercepts[i] + slopes[i] m.

    `variances[i]` is the relative residual variance of piece i and `moments[i]` what its interval needs:
    (sum of weights, weighted mean size, weighted sum of squared deviations). `halves`: of an all-reduce, what its
    reduce-scatter and its all-gather take, if they were measured.
    """

    bounds: np.ndarray
    intercepts: np.ndarray
    slopes: np.ndarray
    smallest: float
    largest: float
    residual: float
    variances: np.ndarray
    moments: np.ndarray
    points: int
    source: str = ""
    halves: Mapping[str, MessageCost] = field(default_factory=dict)

    def _piece(self, size: Any) -> Any:
        return np.minimum(np.searchsorted(self.bounds, size, side="left"), len(self.bounds) - 1)

    def seconds(self, size: Any) -> Any:
        """T(m); below the smallest measured size no less than the fit there."""
        m = np.maximum(size, self.smallest)
        i = self._piece(m)
        time = self.intercepts[i] + self.slopes[i] * m
        return float(time) if np.ndim(time) == 0 else time

    def startup_seconds(self, size: Any) -> Any:
        """T(m) without the bytes at the slope of the largest piece: what does not occupy the link."""
        startup = np.maximum(self.seconds(size) - self.slopes[-1] * np.asarray(size), 0.0)
        return float(startup) if np.ndim(startup) == 0 else startup

    def least_transfer_seconds(self, total: float, low: bool = False) -> float:
        """In messages of the size with the highest throughput: that of some piece's end, or of the last slope."""
        pieces = self.pieces()
        per_byte = [self.slope_low() if low else float(self.slopes[-1])]
        for i, piece in enumerate(pieces):
            last = np.inf if i == len(pieces) - 1 else piece["to_bytes"]  # the last piece is extended
            # T, and T less its half interval, which is concave, are least over m at an end of their piece
            for size in (piece["from_bytes"], last) if i == 0 or piece["from_bytes"] < total else ():
                m = min(size, total)
                per_byte.append((piece["a"] + piece["b"] * m - (self._half(i, m) if low else 0.0)) / m)
        return total * max(float(min(per_byte)), 0.0) if total else 0.0

    def slope_low(self) -> float:
        """The lower end of the 95 % interval of the slope of the largest piece, which times long messages."""
        _, _, spread, freedom = self.moments[-1]
        if freedom < 1 or not spread:
            return 0.0
        return max(float(self.slopes[-1] - _student(freedom, 0.95) * np.sqrt(self.variances[-1] / spread)), 0.0)

    def extrapolates(self, size: float) -> bool:
        """True if `size` lies outside what was measured."""
        return not self.smallest <= size <= self.largest

    def interval(self, size: float, confidence: float = 0.95) -> tuple[float, float]:
        """Confidence interval of T(m) itself (not of a single measurement), from the residuals of its piece."""
        m = max(size, self.smallest)
        i = int(self._piece(m))
        middle, half = self.seconds(size), self._half(i, m, confidence)
        return (middle - half, middle + half) if half < np.inf else (0.0, half)

    def _half(self, piece: int, size: float, confidence: float = 0.95) -> float:
        """Half of the interval of T there; infinite if the piece has no residuals."""
        weight, mean, spread, freedom = self.moments[piece]
        if freedom < 1:
            return float("inf")
        deviation = np.sqrt(self.variances[piece] * (1 / weight + ((size - mean) ** 2 / spread if spread else 0.0)))
        return float(_student(freedom, confidence) * deviation)

    def pieces(self) -> list[dict[str, float]]:
        """a (seconds) and b (seconds per byte) of each line, with the range of bytes that it was fitted to."""
        ends = [self.smallest, *self.bounds[:-1], self.largest]
        lines = zip(pairwise(ends), self.intercepts, self.slopes, strict=True)
        return [
            {"from_bytes": float(low), "to_bytes": float(high), "a": float(a), "b": float(b)}
            for (low, high), a, b in lines
        ]

    def describe(self) -> str:
        """Pieces, range and residual."""
        return (
            f"{len(self.bounds)} linear piece(s) through {self.points} points, {self.smallest:g} to {self.largest:g} B"
            f", mean relative residual {self.residual:.2%}" + (f" ({self.source})" if self.source else "")
        )


def _student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + confidence / 2))


def fit(sizes: Any, times: Any, *, pieces: int = 6, source: str = "") -> Fitted:
    """Fit at most `pieces` lines to measured (bytes, seconds); raises InputError for points that no line fits."""
    m, t = np.asarray(sizes, float), np.asarray(times, float)
    if len(np.unique(m)) < 2:
        raise InputError(f"cost fit {source}: {len(np.unique(m))} distinct message size(s): measure at least two")
    if not (np.isfinite(m).all() and np.isfinite(t).all() and (m > 0).all() and (t > 0).all()):
        raise InputError(f"cost fit {source}: sizes and times must be finite and positive")
    order = np.argsort(m, kind="stable")
    m, t = m[order], t[order]
    # cuts only between distinct sizes
    starts = np.flatnonzero(np.r_[True, m[1:] > m[:-1]])
    ends = np.r_[starts[1:], len(m)]
    groups, n = len(starts), len(m)
    shortest = min(SHORTEST_PIECE, groups)
    # prefix sums of the weighted normal equations, weights 1/t^2: relative errors count
    w = 1 / t**2
    sums = np.vstack([np.zeros(5), np.cumsum(np.stack([w, w * m, w * t, w * m * m, w * m * t], 1), 0)])

    def line(i: int, j: int) -> tuple[float, float, float]:
        """Intercept, slope and relative squared error of the points of groups i..j-1."""
        sw, sm, st, smm, smt = sums[ends[j - 1]] - sums[starts[i]]
        determinant = sw * smm - sm * sm
        slope = (sw * smt - sm * st) / determinant if determinant > 0 else 0.0
        slope = max(slope, 0.0)  # a longer message is never modelled as cheaper inside a piece
        intercept = (st - slope * sm) / sw
        first = m[starts[i]] if i == 0 else np.sqrt(m[ends[i - 1] - 1] * m[starts[i]])  # where the piece begins
        if intercept + slope * first <= 0:  # of times that were disturbed; no message takes less than nothing
            intercept, slope = 0.0, smt / smm
        part = slice(starts[i], ends[j - 1])
        error = float((((intercept + slope * m[part]) / t[part] - 1) ** 2).sum())
        return intercept, slope, error

    most = max(1, min(pieces, groups // shortest))
    error = np.full((most + 1, groups + 1), np.inf)
    cut = np.zeros((most + 1, groups + 1), int)
    error[0, 0] = 0.0
    # longer messages are extrapolated with the last piece: a few points at the edge must not set its slope
    last_start = int(np.searchsorted(m[starts] * LAST_PIECE_SPAN, m[-1], side="right"))
    lines = {}
    for j in range(shortest, groups + 1):
        for i in (0, *range(shortest, j - shortest + 1)):
            if (i == 0 or j < groups or i < last_start) and (most > 1 or j - i == groups):
                lines[i, j] = line(i, j)
    for k in range(1, most + 1):
        for j in range(k * shortest, groups + 1):
            for i in range((k - 1) * shortest, j - shortest + 1):
                if (i, j) in lines and error[k - 1, i] + lines[i, j][2] < error[k, j]:
                    error[k, j], cut[k, j] = error[k - 1, i] + lines[i, j][2], i
    # a piece costs a slope, an intercept and a cut; the floor keeps perfect lines from asking for more pieces
    criterion = [n * np.log(max(error[k, groups] / n, 1e-12)) + 3 * k * np.log(n) for k in range(1, most + 1)]
    best = int(np.argmin(criterion)) + 1
    cuts = [groups]
    for k in range(best, 0, -1):
        cuts.append(int(cut[k, cuts[-1]]))
    cuts = cuts[::-1]
    bounds, intercepts, slopes, variances, moments = [], [], [], [], []
    for i, j in pairwise(cuts):
        intercept, slope, squared = lines[i, j]
        low, high = m[ends[j - 1] - 1], m[starts[j]] if j < groups else np.inf
        bounds.append(np.sqrt(low * high) if j < groups else np.inf)
        intercepts.append(intercept)
        slopes.append(slope)
        part = slice(starts[i], ends[j - 1])
        freedom = ends[j - 1] - starts[i] - 2
        sw, sm, _, _, _ = sums[ends[j - 1]] - sums[starts[i]]
        variances.append(squared / freedom if freedom > 0 else 0.0)
        moments.append((sw, sm / sw, float((w[part] * (m[part] - sm / sw) ** 2).sum()), freedom))
    fitted = Fitted(
        bounds=np.array(bounds),
        intercepts=np.array(intercepts),
        slopes=np.array(slopes),
        smallest=float(m[0]),
        largest=float(m[-1]),
        residual=0.0,
        variances=np.array(variances),
        moments=np.array(moments),
        points=n,
        source=source,
    )
    return dataclasses.replace(fitted, residual=float(np.mean(np.abs(fitted.seconds(m) / t - 1))))


def straight_line(sizes: Any, times: Any) -> tuple[float, float, float]:
    """(a, b, R^2) of the line a + b m of least squares: what a paper that draws one line would report."""
    m, t = np.asarray(sizes, float), np.asarray(times, float)
    b, a = np.polyfit(m, t, 1)
    spread = float(((t - t.mean()) ** 2).sum())
    return float(a), float(b), 1.0 - float(((t - a - b * m) ** 2).sum()) / spread if spread else 1.0


def load_points(
    path: str | Path, ranks: int | None = None, collective: str = "", kind: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Read (bytes, seconds) from a CSV with these columns; lines that begin with # are comments.

    A column `mean_seconds` wins over `seconds`. If there is a column `ranks`, `ranks` chooses, and if there is a column
    `collective`, `collective` does (empty: the backend's own). Of a file with a column `kind`, the points of that kind
    are read (empty: all-reduces of all ranks). Raises InputError with file and line, or with the
    numbers of ranks (the collectives) that are there if none of them is the chosen one or, of ranks, none was named.
    """
    points: dict[str, dict[int | None, list[tuple[float, float]]]] = {}
    number = 0  # of the line in the file; the number of the reader does not count comments

    def rows(file: IO[str]) -> Iterator[str]:
        nonlocal number
        for number, text in enumerate(file, start=1):  # noqa: B007
            if not text.startswith("#"):
                yield text

    try:
        with io.StringIO(reading.text(path, "points"), newline="") as file:
            reader = csv.DictReader(rows(file))
            columns = set(reader.fieldnames or ())
            if not {"bytes", "seconds"} <= columns:
                raise InputError(f"{path}: needs the columns bytes,seconds; has {','.join(reader.fieldnames or ())}")
            time = "mean_seconds" if "mean_seconds" in columns else "seconds"
            by_ranks = "ranks" in columns
            for row in reader:
                if (row.get("kind") or "") != kind:
                    continue
                try:
                    row_ranks = int(row["ranks"]) if by_ranks else None
                    measured = points.setdefault(row.get("collective") or "", {}).setdefault(row_ranks, [])
                    measured.append((float(row["bytes"]), float(row[time])))
                except (TypeError, ValueError):
                    raise InputError(
                        f"{path}, line {number}: not {'three' if by_ranks else 'two'} numbers: {row}"
                    ) from None
    except csv.Error as error:
        raise InputError(f"{path}, line {number}: no CSV: {error}") from None
    chosen = collective if "collective" in columns else ""
    if points and chosen not in points:
        known, absent = (
            ", ".join(name or "the backend's own" for name in names) for names in (sorted(points), [chosen])
        )
        raise InputError(
            f"{path}: has times of {known}, not of {absent}: gradsync measure allreduce --collective gives them"
        )
    of_collective = points.get(chosen, {})
    if by_ranks and ranks is None and len(of_collective) == 1:
        (ranks,) = of_collective
    key = ranks if by_ranks else None
    if of_collective and key not in of_collective:
        known = ", ".join(map(str, sorted(n for n in of_collective if n is not None)))
        raise InputError(
            f"{path}: has all-reduce times of {known} ranks, "
            + (f"not of {ranks}: measure them with --ranks {ranks}" if ranks else "say which: give --ranks")
        )
    measured_points = np.array(of_collective.get(key, []), float).reshape(-1, 2)  # (points, 2)
    return measured_points[:, 0], measured_points[:, 1]

"""How many parts a chip is best cut into, from times that were measured with several numbers of parts.

p parts compute at the same time, each a batch of its own on 1/p of the cores, then sum their gradients and update. The
best p has the most samples per second. For a number of parts or cores that was not measured, forward and backward of a
part on c cores take s + w/c seconds (Amdahl's law; the SC17 paper has no model), the sum 2 ceil(log2 p) times what one
round takes: both are fitted to what was measured by least squares.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field, ValidationError, model_validator

from gradsync.clusters import chip
from gradsync.clusters.nodes import Closed
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import MOST_COUNT, MOST_RANKS
from gradsync.statistics.intervals import CONFIDENCE, median_interval

VERSION = 1
Seconds = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]


class Timed(Closed):
    """What was measured with so many parts: `cores` of a part, and the repeats of each time, in seconds."""

    parts: int = Field(ge=1, le=MOST_RANKS)
    cores: int = Field(ge=1, le=MOST_RANKS)
    compute_seconds: list[Seconds] = Field(min_length=1, description="forward and backward of the slowest part")
    update_seconds: list[Seconds] = Field(min_length=1)
    sum_seconds: list[Seconds] = Field(description="of the parts' gradients; empty: one part has nothing to sum")

    @model_validator(mode="after")
    def _summed(self) -> Timed:
        if self.parts > 1 and not self.sum_seconds:
            raise ValueError(f"{self.parts} parts have gradients to sum, and sum_seconds is empty: measure parts again")
        return self


class ChipTimes(Closed):
    """What `gradsync measure parts` has written; `batch` samples are those of a part."""

    version: int = Field(ge=VERSION, le=VERSION)
    model: str
    batch: int = Field(ge=1, le=MOST_COUNT)
    weights_bytes: int = Field(ge=1, le=int(chip.MOST_BYTES))
    timed: tuple[Timed, ...] = Field(min_length=1)
    provenance: dict[str, Any]


class Row(NamedTuple):
    """A number of parts: seconds of an iteration and of its sum, samples per second, and what it rests on.

    `low` and `high` are an interval of 95 % of the iteration, of all that it is made of, if each was measured often
    enough. `refused`: why a chip can't have so many; empty: it can.
    """

    parts: int
    iteration_seconds: float
    low: float | None
    high: float | None
    sum_seconds: float
    samples_per_second: float
    measured: bool
    refused: str


class Fit(NamedTuple):
    """Seconds of forward and backward: `serial` + `work` / cores; of a round of the sum; of an update."""

    serial: float
    work: float
    round: float
    update: float

    def compute(self, cores: float) -> float:
        """Forward and backward of a part of so many cores."""
        return self.serial + self.work / cores

    def sum(self, parts: int) -> float:
        """Up the tree and down."""
        return 2 * (parts - 1).bit_length() * self.round


def load(path: str | Path) -> ChipTimes:
    """What was measured; raises InputError for a file that can't be read or has something else."""
    try:
        return ChipTimes.model_validate(reading.json_of(Path(path), "times of parts"))
    except ValidationError as error:
        raise InputError(f"times of parts {path}: {first_problem(error, ChipTimes)}") from None


def fitted(times: ChipTimes) -> Fit | None:
    """The fit; None if one number of cores alone was measured, or none that sums."""
    cores = np.array([each.cores for each in times.timed], float)
    seconds = np.array([np.median(each.compute_seconds) for each in times.timed])
    summed = [each for each in times.timed if each.parts > 1]
    if len(set(cores)) < 2 or not summed:
        return None
    serial, work = _not_negative(np.column_stack([np.ones_like(cores), 1 / cores]), seconds)
    rounds = [float(np.median(each.sum_seconds)) / (2 * (each.parts - 1).bit_length()) for each in summed]
    return Fit(
        serial, work, float(np.mean(rounds)), float(np.median([np.median(each.update_seconds) for each in times.timed]))
    )


def _not_negative(columns: np.ndarray, values: np.ndarray) -> tuple[float, float]:
    """Least squares with both numbers at least 0."""
    from scipy.optimize import nnls

    (first, second), _ = nnls(columns, values)
    return float(first), float(second)


def rows(
    times: ChipTimes, parts: Sequence[int], cores: int, *, memory_bytes: float, data_bytes: float, elsewhere: bool
) -> list[Row]:
    """A row for each number of parts of a chip of so many cores, whose memory for copies has so many bytes.

    `elsewhere`: it is another chip than the measured one, so that nothing of it was measured. Numbers of parts that
    were not measured and have no fit are left out.
    """
    fit, known = fitted(times), {} if elsewhere else {each.parts: each for each in times.timed}
    made = []
    for count in parts:
        refused = _refused(count, cores, times.weights_bytes, data_bytes, memory_bytes)
        if count in known:
            made.append(_measured(known[count], times.batch, refused))
        elif fit is not None:
            sums = fit.sum(count)
            seconds = fit.compute(cores / count) + sums + fit.update
            made.append(Row(count, seconds, None, None, sums, count * times.batch / seconds, False, refused))
    return made


def best(made: Sequence[Row]) -> Row:
    """The row with the most samples per second of those that the chip can have; raises InputError if there is none."""
    able = [row for row in made if not row.refused]
    if not able:
        raise InputError(made[0].refused if made else "no number of parts was measured, or follows from a fit")
    return max(able, key=lambda row: row.samples_per_second)


def why(chosen: Row, made: Sequence[Row]) -> str:
    """Why it is the best, and whether that is sure: intervals of measured iterations may overlap."""
    able = [row for row in made if not row.refused and row != chosen]
    told = (
        f"{chosen.parts} part(s): {chosen.samples_per_second:.1f} samples per second, "
        f"{1e3 * chosen.sum_seconds:.2f} of {1e3 * chosen.iteration_seconds:.2f} ms of an iteration are the sum"
    )
    if able:
        second = max(able, key=lambda row: row.samples_per_second)
        told += f"; next is {second.parts}, {second.samples_per_second / chosen.samples_per_second:.3f} of that"
        if not (chosen.measured and second.measured):
            told += ", by a fit, whose error nobody knows"
        elif not _apart(chosen, second):
            told += ", which these times don't tell apart"
    turned = sorted({row.refused for row in made if row.refused})
    return told + "".join(f"; refused: {each}" for each in turned)


def _apart(one: Row, other: Row) -> bool:
    """Whether the intervals of two measured rows, per sample, have nothing in common."""
    ends = [row.low is not None and row.high is not None for row in (one, other)]
    if not all(ends):
        return False
    per_part = one.parts, other.parts
    return one.high / per_part[0] < other.low / per_part[1]  # type: ignore[operator]


def _measured(each: Timed, batch: int, refused: str) -> Row:
    measured = [repeats for repeats in (each.compute_seconds, each.sum_seconds, each.update_seconds) if repeats]
    # all of them hold their medians at once with 95 % if each misses its own as many times less often (Bonferroni)
    confidence = 1 - (1 - CONFIDENCE) / len(measured)
    lows, middles, highs = zip(*(median_interval(repeats, confidence) for repeats in measured), strict=True)
    low, high = (None if None in ends else float(sum(ends)) for ends in (lows, highs))
    seconds, sums = sum(middles), float(np.median(each.sum_seconds)) if each.sum_seconds else 0.0
    return Row(each.parts, seconds, low, high, sums, each.parts * batch / seconds, True, refused)


def _refused(count: int, cores: int, weights: float, data: float, memory: float) -> str:
    try:
        chip.refuse_parts(count, cores, f"{count} parts")
        chip.refuse_copies(count, weights, data, memory, f"{count} parts")
    except InputError as error:
        return str(error)
    return ""

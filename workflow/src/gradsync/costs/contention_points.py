"""Contention as measured: what several all-reduces at once took, by size and number of them. JSON.

T_k(m): seconds of each of k all-reduces of m bytes that start at once, k = 1..K, in several sweeps over all sizes and
k. `contention_fit.py` fits a model to them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gradsync.costs import contention_fit
from gradsync.costs.contention_fit import Fit
from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import LEAST_MEASURED_SECONDS, MOST_MEASURED_LANES, MOST_MEASURED_SECONDS, MOST_MESSAGE

VERSION = 1


class ContentionPoint(BaseModel):
    """`lanes` all-reduces of `bytes` at once: in each sweep, the mean seconds of one of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    lanes: int = Field(ge=1, le=MOST_MEASURED_LANES)
    bytes: int = Field(gt=0, le=MOST_MESSAGE)
    seconds: tuple[float, ...] = Field(min_length=1)

    @field_validator("seconds")
    @classmethod
    def _times(cls, seconds: tuple[float, ...]) -> tuple[float, ...]:
        if not all(LEAST_MEASURED_SECONDS <= each <= MOST_MEASURED_SECONDS for each in seconds):
            raise ValueError(f"must be {LEAST_MEASURED_SECONDS:g} to {MOST_MEASURED_SECONDS:g}")
        return seconds

    @property
    def mean(self) -> float:
        """Of all sweeps."""
        return float(np.mean(self.seconds))


class Contention(BaseModel):
    """The points between `ranks` ranks."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    ranks: int = Field(ge=1)
    points: tuple[ContentionPoint, ...] = Field(min_length=1)
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _complete(self) -> Contention:
        if self.version != VERSION:
            raise ValueError(f"contention version {self.version}; this gradsync reads version {VERSION}")
        present = [(point.lanes, point.bytes) for point in self.points]
        needed = {(k, m) for k in range(1, self.lanes + 1) for m in self.sizes}
        if len(set(present)) < len(present):
            raise ValueError("two points have the same lanes and bytes")
        if missing := needed - set(present):
            raise ValueError("no point of {} lane(s) and {} bytes".format(*min(missing)))
        if self.lanes < 2 or len(self.sizes) < 2:
            raise ValueError(f"{self.lanes} lane(s), {len(self.sizes)} size(s): at least two of each are needed")
        if len({len(point.seconds) for point in self.points}) > 1:
            raise ValueError("points differ in their number of sweeps")
        return self

    @property
    def lanes(self) -> int:
        """The most messages at once."""
        return max(point.lanes for point in self.points)

    @property
    def sizes(self) -> list[int]:
        """Message sizes in bytes, ascending."""
        return sorted({point.bytes for point in self.points})

    def times(self) -> np.ndarray:
        """Seconds by sweep, k - 1 and size.  # (sweeps, K, sizes)"""
        at = {(point.lanes, point.bytes): point.seconds for point in self.points}
        rows = [[at[k, m] for m in self.sizes] for k in range(1, self.lanes + 1)]
        return np.moveaxis(np.array(rows), -1, 0)

    def fit(self, source: str = "") -> Fit:
        """Capacity, host cost and gamma, with the cost of a message alone."""
        return contention_fit.fit(self.sizes, self.times(), source)

    def to_json(self) -> str:
        """Indented JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    @staticmethod
    def load(path: str | Path, ranks: int | None = None) -> Contention:
        """Read a file; raises InputError if it is missing, no contention, or not of `ranks` ranks."""
        try:
            contention = Contention.model_validate(reading.json_of(path, "contention"))
        except ValidationError as error:
            raise InputError(f"contention {path}: not a contention: {first_problem(error, Contention)}") from None
        if ranks is not None and contention.ranks != ranks:
            raise InputError(
                f"contention {path} was measured between {contention.ranks} ranks, the plan is for {ranks}: "
                f"measure it with gradsync measure contention --ranks {ranks}"
            )
        return contention

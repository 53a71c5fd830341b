"""Interference: how much computation and a message in flight slow one another down, measured by message size. JSON.

Both are threads of a rank, and it takes time as well until one of them hands over to the other: `handover_seconds` from
a gradient that is ready to a message that waited for it, and from the last message to the update.

While a rank computes and one of its messages is in flight, computation takes `computation` times and the message
`communication` times as long as alone. Between measured sizes the factors are interpolated over the logarithm of the
size; a message smaller or larger than all of them has the factors of the nearest.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import MOST_MESSAGE

VERSION = 1
Measured = tuple[float | None, float, float | None]
"""(low, median, high) of repeats; the ends are None if there is no interval."""


def interval(measured: Measured) -> tuple[float, float] | None:
    """(low, high), or None if there is none."""
    low, _, high = measured
    return None if low is None or high is None else (low, high)


class InterferencePoint(BaseModel):
    """Factors, at least 1, for messages of `bytes`; `..._interval` is what was measured, 95 % (low, high).

    An interval is None if too few rounds were measured for one, or somebody wrote the factor by hand.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    bytes: int = Field(gt=0, le=MOST_MESSAGE)
    computation: float = Field(ge=1, allow_inf_nan=False)
    communication: float = Field(ge=1, allow_inf_nan=False)
    computation_interval: tuple[float, float] | None = None
    communication_interval: tuple[float, float] | None = None

    @staticmethod
    def of(bytes_: int, computation: Measured, communication: Measured) -> InterferencePoint:
        """From (low, median, high) of measured ratios; one below 1 is noise, since interference speeds nothing up."""
        return InterferencePoint(
            bytes=bytes_,
            computation=max(1.0, computation[1]),
            communication=max(1.0, communication[1]),
            computation_interval=interval(computation),
            communication_interval=interval(communication),
        )


class Interference(BaseModel):
    """Factors between `ranks` ranks (None: of any number), by message size."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    ranks: int | None = Field(default=None, ge=1)
    points: tuple[InterferencePoint, ...] = Field(min_length=1)
    handover_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    handover_interval: tuple[float, float] | None = None
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Interference:
        if self.version != VERSION:
            raise ValueError(f"interference version {self.version}; this gradsync reads version {VERSION}")
        sizes = [point.bytes for point in self.points]
        if sizes != sorted(set(sizes)):
            raise ValueError("points must be of ascending, different bytes")
        return self

    def factors(self, size: float) -> tuple[float, float]:
        """(of computation, of communication) while a message of `size` bytes is in flight."""
        sizes = [math.log(point.bytes) for point in self.points]
        at = math.log(max(size, 1.0))  # not NumPy's: a plan may hold integers beyond 64 bits
        return (
            float(np.interp(at, sizes, [point.computation for point in self.points])),
            float(np.interp(at, sizes, [point.communication for point in self.points])),
        )

    def factor_arrays(self, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same of many sizes, below 2^63 bytes."""
        points = np.log([point.bytes for point in self.points])
        at = np.log(np.maximum(sizes, 1.0))
        return (
            np.interp(at, points, [point.computation for point in self.points]),
            np.interp(at, points, [point.communication for point in self.points]),
        )

    def to_json(self) -> str:
        """Indented JSON."""
        return json.dumps(self.model_dump(mode="json", exclude_none=True), indent=1) + "\n"

    @staticmethod
    def load(path: str | Path, ranks: int | None = None) -> Interference:
        """Read a file; raises InputError if it is missing, no interference, or not of `ranks` ranks."""
        try:
            interference = Interference.model_validate(reading.json_of(path, "interference"))
        except ValidationError as error:
            raise InputError(
                f"interference {path}: not an interference: {first_problem(error, Interference)}"
            ) from None
        if ranks is not None and interference.ranks not in (None, ranks):
            raise InputError(
                f"interference {path} was measured between {interference.ranks} ranks, the plan is for {ranks}: "
                f"measure it with --ranks {ranks}"
            )
        return interference

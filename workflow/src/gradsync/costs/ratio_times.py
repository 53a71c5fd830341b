"""Ratios of LARS or LAMB as measured: what each rank takes for all of them, and what it takes to deal them (PTO). JSON.

Both took turns in each round, so that their repeats are pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import LEAST_MEASURED_SECONDS, MOST_MEASURED_SECONDS, MOST_RANKS

VERSION = 1


class RatioPoint(BaseModel):
    """The ratios of one optimizer: in each round the mean seconds of both, over iterations and ranks.

    `serial_seconds`: every rank computes all of them; `pto_seconds`: each computes its own, and they are gathered.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    optimizer: str
    serial_seconds: tuple[float, ...] = Field(min_length=1)
    pto_seconds: tuple[float, ...] = Field(min_length=1)

    @field_validator("serial_seconds", "pto_seconds")
    @classmethod
    def _times(cls, seconds: tuple[float, ...]) -> tuple[float, ...]:
        if not all(LEAST_MEASURED_SECONDS <= each <= MOST_MEASURED_SECONDS for each in seconds):
            raise ValueError(f"must be {LEAST_MEASURED_SECONDS:g} to {MOST_MEASURED_SECONDS:g}")
        return seconds


class RatioTimes(BaseModel):
    """The points of a model between so many ranks; `elements` are those of all of its tensors."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    device: Literal["cpu", "cuda"]
    workload: str
    tensors: int = Field(ge=1)
    elements: int = Field(ge=1)
    ranks: int = Field(ge=2, le=MOST_RANKS)
    points: tuple[RatioPoint, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> RatioTimes:
        if self.version != VERSION:
            raise ValueError(f"version {self.version} of ratio times; this gradsync reads version {VERSION}")
        if len({point.optimizer for point in self.points}) < len(self.points):
            raise ValueError("two points have the same optimizer")
        if any(len(point.serial_seconds) != len(point.pto_seconds) for point in self.points):
            raise ValueError("a point has other numbers of rounds for its two times")
        return self

    def to_json(self) -> str:
        """Indented JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    @staticmethod
    def load(path: str | Path) -> RatioTimes:
        """Read a file; raises InputError if it is missing or none of these."""
        try:
            return RatioTimes.model_validate(reading.json_of(path, "ratio times"))
        except ValidationError as error:
            problem = first_problem(error, RatioTimes)
            raise InputError(f"ratio times {path}: {problem}: measure them with gradsync measure ratios") from None

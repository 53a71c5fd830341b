"""Selections as measured: what each compressor took for k of so many elements, and what it selected. JSON.

Compressors took turns in each round, so that the repeats of two of them are pairs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from gradsync.errors import InputError
from gradsync.files import reading
from gradsync.files.problems import first_problem
from gradsync.limits import LEAST_MEASURED_SECONDS, MOST_COUNT, MOST_MEASURED_SECONDS

VERSION = 1


class SelectionPoint(BaseModel):
    """A compressor on a vector: in each round, the mean seconds of a selection.

    `recall`: the part of the selected elements that belongs to the exact top k.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    compressor: str
    elements: int = Field(ge=1, le=MOST_COUNT)
    k: int = Field(ge=1)
    selected: int = Field(ge=0)
    recall: float = Field(ge=0, le=1)
    seconds: tuple[float, ...] = Field(min_length=1)

    @field_validator("seconds")
    @classmethod
    def _times(cls, seconds: tuple[float, ...]) -> tuple[float, ...]:
        if not all(LEAST_MEASURED_SECONDS <= each <= MOST_MEASURED_SECONDS for each in seconds):
            raise ValueError(f"must be {LEAST_MEASURED_SECONDS:g} to {MOST_MEASURED_SECONDS:g}")
        return seconds


class SelectionTimes(BaseModel):
    """The points of one device, of 32-bit elements. `density` is k over the elements, before k was rounded."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    version: int = VERSION
    device: Literal["cpu", "cuda"]
    density: float = Field(gt=0, le=1)
    points: tuple[SelectionPoint, ...] = Field(min_length=1)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> SelectionTimes:
        if self.version != VERSION:
            raise ValueError(f"version {self.version} of selection times; this gradsync reads version {VERSION}")
        if len({(point.compressor, point.elements) for point in self.points}) < len(self.points):
            raise ValueError("two points have the same compressor and elements")
        if len({len(point.seconds) for point in self.points}) > 1:
            raise ValueError("points differ in their number of rounds")
        return self

    def to_json(self) -> str:
        """Indented JSON."""
        return json.dumps(self.model_dump(mode="json"), indent=1) + "\n"

    @staticmethod
    def load(path: str | Path) -> SelectionTimes:
        """Read a file; raises InputError if it is missing or none of these."""
        try:
            return SelectionTimes.model_validate(reading.json_of(path, "selection times"))
        except ValidationError as error:
            problem = first_problem(error, SelectionTimes)
            raise InputError(f"selection times {path}: {problem}: measure them with gradsync measure topk") from None

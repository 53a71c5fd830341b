"""Recipes: a training in stages, each with epochs, size of its images, batch and learning rate of its own.

Public clouds (Shi et al., 2020), Section 5.6: 13 epochs of images of 96 x 96, 11 of 128, 3 of 224 and 1 of 288 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from gradsync.errors import InputError
from gradsync.limits import MOST_COUNT, MOST_LENGTH
from gradsync.names import near, shown

FORM = "epochs=N[,size=PX][,batch=N][,lr=RATE]"


@dataclass(frozen=True)
class Stage:
    """A part of a training; what is None is as in the launch."""

    epochs: int
    size: int | None = None
    batch: int | None = None
    lr: float | None = None

    def text(self) -> str:
        """As `parsed` reads it."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return ",".join(f"{key}={value}" for key, value in values.items() if value is not None)


LIMITS = {"epochs": MOST_COUNT, "size": MOST_LENGTH, "batch": MOST_COUNT}


def parsed(text: str, where: str = "--stage") -> Stage:
    """The stage that a text like `epochs=13,size=96` says; raises InputError, which says `where`."""
    place, values = f"{where} {shown(text)}", dict[str, float]()
    keys = [field.name for field in fields(Stage)]
    for part in text.split(","):
        key, _, value = part.partition("=")
        if key not in keys or key in values:
            problem = "is given twice" if key in values else f"does not exist; {near(key, keys)}give {FORM}"
            raise InputError(f"{place}: {shown(key)} {problem}")
        try:
            values[key] = float(value) if key == "lr" else int(value)
        except ValueError:
            raise InputError(f"{place}: {key} must be a number, not {shown(value)}: give {FORM}") from None
        if not 0 < values[key] <= LIMITS.get(key, 1e9):
            raise InputError(f"{place}: {key} {values[key]:g}: above 0, and at most {LIMITS.get(key, 1e9):g}")
    if "epochs" not in values:
        raise InputError(f"{place}: epochs is missing: give {FORM}")
    return Stage(**values)  # type: ignore[arg-type]


def stages(texts: Sequence[str]) -> tuple[Stage, ...]:
    """The stages that options say; raises InputError for one that can't be read."""
    return tuple(map(parsed, texts))

"""Schemes of several phases: a training begins with one scheme and goes on with others, each for a share of the epochs.

Public clouds (Shi et al., 2020), Section 5.6, trains so: with sparse messages first, with dense ones later.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict

from gradsync import names
from gradsync.errors import InputError
from gradsync.plan.phases import refuse_shares

if TYPE_CHECKING:
    from gradsync.configuration.scheme import Scheme

OWN = {"name", "phases", "residual", "label", "paper", "place"}  # keys of a scheme with phases: the others are theirs


def _share(value: Any) -> Any:
    """A number, or a fraction like 13/28."""
    if not isinstance(value, str):
        return value
    try:
        above, _, below = value.partition("/")
        return float(above) / float(below or 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"must be a number or a fraction like 13/28, not {names.shown(value)}") from None


class Phase(BaseModel):
    """A scheme, and its share of the epochs."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    scheme: str
    share: Annotated[float, BeforeValidator(_share)]


def composed(scheme: Scheme, known: Mapping[str, Scheme]) -> tuple[Scheme, ...]:
    """The scheme of each phase. Raises InputError for phases that don't exist or can't follow one another."""
    refuse_shares([phase.share for phase in scheme.phases], "key phases")
    if other := sorted(scheme.model_fields_set - OWN):
        raise InputError(f"key {other[0]}: belongs to one scheme, and each phase has its own: leave it out")
    found = []
    for number, phase in enumerate(scheme.phases, 1):
        names.refuse_unknown("scheme", phase.scheme, known, f"phase {number}")
        part = known[phase.scheme]
        if part.phases:
            raise InputError(f"phase {number}: scheme {part.name!r} has phases of its own: name those")
        if not part.averaged:
            raise InputError(
                f"phase {number}: scheme {part.name!r}: update {part.update!r} applies no mean gradient of all ranks"
            )
        found.append(part)
    for before, after in pairwise(found):
        _refuse(before, after, scheme.residual)
    if scheme.residual and not any(each.compressor and each.error_feedback for each in found[:-1]):
        raise InputError("key residual: no phase but the last keeps what it doesn't send: leave it out")
    return tuple(found)


def _refuse(before: Scheme, after: Scheme, residual: str) -> None:
    """Raises InputError if a scheme can't take over from another."""
    where = f"{after.name!r} can't take over from {before.name!r}"
    if before.update != after.update:
        raise InputError(
            f"{where}: its update is {after.update!r}, not {before.update!r}, by which ranks keep other parts of what "
            "the optimizer has: choose schemes of one update"
        )
    if before.optimizer != after.optimizer:
        raise InputError(
            f"{where}: its optimizer is {after.optimizer or 'that of the launch'}, not "
            f"{before.optimizer or 'that of the launch'}"
        )
    if not (before.compressor and before.error_feedback and after.compressor):
        return
    if residual == "flush":
        raise InputError(f"{where}: residual flush needs a dense message, and it sends sparse ones: choose carry")
    if not after.error_feedback:
        raise InputError(f"{where}: it drops what it doesn't send, a residual too: choose one with error feedback")


def changes_of(schemes: tuple[Scheme, ...]) -> str:
    """What they change in the parameters that come out; empty if only the order of sums."""
    different = [f"{each.name}: {text}" for each in schemes if (text := each.changes_training)]
    return "; ".join(dict.fromkeys(different))

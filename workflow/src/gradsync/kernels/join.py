"""Nothing: the end of a collective that was lowered to transfers; carries its name and its postcondition."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track


def compute(reads: list[Array], writes: list[Array]) -> None:
    """Leaves everything as it is."""


def refuse(form: Form) -> None:
    """Any operands."""


def follow(track: Track) -> None:
    """What was there; the postcondition is looked at by whoever follows the plan."""


def moved(form: Form) -> float:
    """No byte."""
    return 0

"""Give every element one value."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, whole_passes
from gradsync.plan.content import CONSTANT, Content, Part


def compute(reads: list[Array], writes: list[Array], *, value: float = 0.0) -> None:
    """Every element of writes = value."""
    for array in writes:
        array[:] = value


def refuse(form: Form) -> None:
    """Anything may be filled; integers with a whole number."""
    form.counts(0, max(1, len(form.writes)))
    value = form.argument("value")
    for each in form.writes:
        if not each.dtype.startswith(("float", "bfloat")) and not (value.is_integer() and 0 <= value < 256):
            form.fail(f"can't fill {each.dtype} with {value:g}")


def follow(track: Track) -> None:
    """The value."""
    value = Content(CONSTANT, track.op.arguments.get("value", 0.0))
    for number in range(len(track.op.writes)):
        track.put(number, [Part(part.start, part.stop, value) for part in track.held(number)])


moved = whole_passes

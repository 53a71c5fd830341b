"""Copy a range to another of the same type."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, whole_passes
from gradsync.plan import DTYPE_BYTES


def compute(reads: list[Array], writes: list[Array]) -> None:
    """writes[0] = reads[0]."""
    writes[0][:] = reads[0]


def refuse(form: Form) -> None:
    """Any type, the same."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes, types=tuple(DTYPE_BYTES))


def follow(track: Track) -> None:
    """What was read."""
    track.put(0, track.read(0))


moved = whole_passes

"""The sum of squares of a range: what ranks add up to the norm of a gradient of which each has a piece."""

from __future__ import annotations

from gradsync.kernels import FLOATS, Array, Form, Track
from gradsync.kernels.norm import described, refuse_type
from gradsync.plan.content import SQUARES, Content, Part


def compute(reads: list[Array], writes: list[Array]) -> None:
    """writes[0][0] = sum of the squares of reads[0], in the type of writes; of no element it is 0."""
    wide = reads[0].astype(writes[0].dtype, copy=False)
    writes[0][0] = (wide * wide).sum()


def refuse(form: Form) -> None:
    """A range, and an element for it."""
    form.counts(1, 1)
    form.apart()
    for each in (*form.reads, *form.writes):
        form.alike(each, types=FLOATS)
    form.long(form.writes[0], 1)
    refuse_type(form)


def follow(track: Track) -> None:
    """Squares of just these elements."""
    track.put(0, [Part(0, 1, Content(SQUARES, described(track, 0)))])


def moved(form: Form) -> float:
    """Reads everything once."""
    return form.reads[0].bytes + form.writes[0].bytes

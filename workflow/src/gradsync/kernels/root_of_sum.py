"""The root of a sum: the norm of what sums of squares are of."""

from __future__ import annotations

from gradsync.kernels import FLOATS, Array, Form, Track, whole_passes
from gradsync.plan.content import NORM, SQUARES, Content, Part, joined


def compute(reads: list[Array], writes: list[Array]) -> None:
    """writes[0][0] = root of the sum of reads[0]."""
    writes[0][0] = reads[0].sum() ** 0.5


def refuse(form: Form) -> None:
    """A range, and an element of its type."""
    form.counts(1, 1)
    form.apart()
    for each in (*form.reads, *form.writes):
        form.alike(each, types=FLOATS)
    if form.reads[0].dtype != form.writes[0].dtype:
        form.fail(f"of {form.reads[0].dtype} is not a {form.writes[0].dtype}")
    form.long(form.writes[0], 1)


def follow(track: Track) -> None:
    """The norm of all elements whose squares are in the sum, each once."""
    runs: list[tuple[int, int, str, object]] = []
    for part in track.read(0):
        if part.content.kind != SQUARES or part.stop - part.start > 1:
            track.fail(f"sums squares and finds {part.content.kind}")
        runs += part.content.key
    together = joined(runs)
    if together is None:
        track.fail("sums the squares of an element a second time")
    track.put(0, [Part(0, 1, Content(NORM, together))])


moved = whole_passes

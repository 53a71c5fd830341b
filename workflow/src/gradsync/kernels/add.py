"""Add a range to another: what a rank of a collective does with what it receives."""

from __future__ import annotations

from gradsync.kernels import FLOATS, INTEGERS, Array, Form, Track
from gradsync.plan.content import CONSTANT, DERIVED, GRADIENT, MIXED, Content, Part


def compute(reads: list[Array], writes: list[Array], *, scale: float = 1.0) -> None:
    """writes[0] += scale * reads[0]."""
    if scale == 1.0:
        writes[0] += reads[0]
    else:
        writes[0] += reads[0] * scale


def refuse(form: Form) -> None:
    """One type; integers without a scale."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes, types=FLOATS if form.argument("scale") != 1 else (*FLOATS, *INTEGERS))


def follow(track: Track) -> None:
    """The sum of both."""
    scale = track.op.arguments.get("scale", 1.0)

    def scaled(content: Content) -> Content:
        if scale == 1.0:
            return content
        if content.kind == GRADIENT:
            return content._replace(key=content.key.scaled(scale))
        if content.kind == CONSTANT:
            return content._replace(key=content.key * scale)
        kind = MIXED if content.kind in DERIVED else content.kind
        return content._replace(kind=kind, key=track.version("times", scale, content.key))

    added = [Part(part.start, part.stop, scaled(part.content)) for part in track.read(0)]
    track.put(0, track.sum([track.held(0), added]))


def moved(form: Form) -> float:
    """Reads both, writes one."""
    return form.reads[0].bytes + 2 * form.writes[0].bytes

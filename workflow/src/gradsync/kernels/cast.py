"""A range in another type: what travels may be narrower than what is computed."""

from __future__ import annotations

from gradsync.content import CONSTANT, GRADIENT, Content, Part
from gradsync.kernels import FLOATS, Array, Form, Track, whole_passes


def compute(reads: list[Array], writes: list[Array], *, scale: float = 1.0) -> None:
    """writes[0] = scale * reads[0], in the type of writes[0]."""
    writes[0][:] = reads[0] * scale


def refuse(form: Form) -> None:
    """Floating-point types of any kind."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes, types=None)
    for each in (*form.reads, *form.writes):
        form.alike(each, types=FLOATS)
    if not form.argument("scale"):
        form.fail("needs a scale that is not 0")


def follow(track: Track) -> None:
    """Gradients of another weight; of anything else another version, as digits may be lost."""
    scale = track.op.arguments.get("scale", 1.0)

    def scaled(content: Content) -> Content:
        if content.kind == GRADIENT:
            return content._replace(key=content.key._replace(weight=content.key.weight * scale))
        if content.kind == CONSTANT:
            return content._replace(key=content.key * scale)
        return content._replace(key=track.version("cast", track.op.name, scale, content.key))

    track.put(0, [Part(part.start, part.stop, scaled(part.content)) for part in track.read(0)])


moved = whole_passes

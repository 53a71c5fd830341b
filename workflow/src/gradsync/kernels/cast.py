"""A range in another type: what travels may be narrower than what is computed."""

from __future__ import annotations

from gradsync.kernels import FLOATS, Array, Form, Track, whole_passes
from gradsync.plan import DTYPE_BYTES
from gradsync.plan.content import CONSTANT, DERIVED, GRADIENT, MIXED, Content, Part


def compute(reads: list[Array], writes: list[Array], *, scale: float = 1.0) -> None:
    """writes[0] = scale * reads[0]; scaled in the type of writes[0], as DDP's fp16 hook does."""
    writes[0][:] = reads[0]
    if scale != 1.0:
        writes[0] *= scale


def refuse(form: Form) -> None:
    """Floating-point types of any kind."""
    form.counts(1, 1)
    form.alike(*form.reads, *form.writes, types=None)
    for each in (*form.reads, *form.writes):
        form.alike(each, types=FLOATS)


def follow(track: Track) -> None:
    """Gradients of another weight, of fewer digits; of anything else another version."""
    scale = track.op.arguments.get("scale", 1.0)
    wide, narrow = (track.dtype(ref) for ref in (*track.op.reads, *track.op.writes))
    lost = {narrow} if DTYPE_BYTES[narrow] <= DTYPE_BYTES[wide] and narrow != wide else set()

    def scaled(content: Content) -> Content:
        if content.kind == GRADIENT:
            narrowed = content.key.narrowed | lost
            return content._replace(key=content.key.scaled(scale)._replace(narrowed=narrowed))
        if content.kind == CONSTANT:
            return content._replace(key=content.key * scale)
        version = track.version("cast", wide, narrow, scale, content.key)
        track.follows(version, content)
        return content._replace(kind=MIXED if content.kind in DERIVED else content.kind, key=version)

    track.put(0, [Part(part.start, part.stop, scaled(part.content)) for part in track.read(0)])


moved = whole_passes

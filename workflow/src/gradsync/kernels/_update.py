"""Updates of parameters from gradients: which ranges they take, and what their results hold."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track
from gradsync.plan.content import GRADIENT, MOMENTUM, NORM, PARAMETER, Content, Part, Parts, Sum

NORM_FLOOR = 1e-6  # torch's: keeps the norm of a zero gradient from dividing


def shrunk(reads: list[Array], scale: float, clip: float) -> float:
    """The factor of gradients that are scaled and, with `clip`, shrunk to that norm if they are longer.

    As torch's `clip_grad_norm_` does it; reads[1] is the norm of the gradients as they are read.
    """
    return scale * min(1.0, clip / (scale * float(reads[1][0]) + NORM_FLOOR)) if clip else scale


def refuse(form: Form, *, moments: int, extra: int = 0) -> None:
    """gradient[, norm] -> parameter, so many moments of it[, `extra` more]."""
    clip = bool(form.argument("clip"))
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")
    form.counts(1 + clip, 1 + moments + extra)
    form.alike(form.reads[0], *form.writes[: 1 + moments])
    if clip:
        form.long(form.reads[1], 1)


def follow(track: Track, *others: Content, moments: int, read: int = 0, write: int = 0, normed: bool = False) -> None:
    """A new version of the parameters, and of their moments, from the gradients; it depends on `others` too.

    `read` and `write` are the numbers of the operands that hold the gradients, and of the first that is written. What
    clips, or is `normed`, reads the norm of all gradients next.
    """
    gradient = track.read(read)
    state = [track.held(write + i) for i in range(1 + moments)]
    norm = track.read(1)[0].content if normed or track.op.arguments.get("clip") else None
    new: list[Parts] = [[] for _ in state]
    kinds = (PARAMETER, *(MOMENTUM,) * moments)
    for low, high, summed, (parameter, *kept) in track.gradients(gradient, *state):
        for number, (content, kind) in enumerate(zip((parameter, *kept), kinds, strict=True)):
            if content.kind != kind:
                track.fail(f"updates a {kind} and finds {content.kind}")
            if content.shift != parameter.shift:
                track.fail(f"takes the {kind} of other elements")
            if content.key not in {_key(track, number, version) for version in track.kept_for(parameter.key)}:
                track.fail(f"takes the {kind} of another version of the parameters")
        origin = low + (parameter.shift or 0)
        if norm is not None:
            refuse_norm(track, norm, summed, origin, origin + high - low)
        version = track.version(
            *(track.op.kernel, tuple(sorted(track.op.arguments.items())), summed, norm, others),
            *(content.key for content in (parameter, *kept)),
        )
        track.applied(low, high, origin, summed, parameter, version)
        for number, (parts, content) in enumerate(zip(new, (parameter, *kept), strict=True)):
            parts.append(Part(low, high, content._replace(key=_key(track, number, version))))
    for number, parts in enumerate(new):
        track.put(write + number, parts)


def _key(track: Track, number: int, version: int) -> int:
    """The key of what an update of that version leaves in its results: a second moment is no first one.

    All of them begin alike, at 0.
    """
    return version if number < 2 or not version else track.version("moment", number, version)


def moved(form: Form) -> float:
    """Reads gradient, parameters and their moments, writes the last two."""
    return form.reads[0].bytes + 2 * sum(each.bytes for each in form.writes)


def refuse_norm(track: Track, norm: Content, summed: Sum, start: int, stop: int) -> None:
    """Raises unless it is the norm of all gradients of the same ranks, passes and weight, these among them."""
    if norm.kind != NORM:
        track.fail(f"clips to a norm and finds {norm.kind}")
    covered, matched = 0, start
    for low, high, kind, key in norm.key:
        alike = low == covered and kind == GRADIENT and (key.tokens, key.weight) == (summed.tokens, summed.weight)
        covered = high if alike else -1
        if low <= matched < high and key == summed:
            matched = high
    if covered != track.elements or matched < stop:
        track.fail("clips with the norm of something else than the gradients that it applies, of all layers")

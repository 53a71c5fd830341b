"""What updates of parameters from gradients have in common: which ranges they take, and what their results hold."""

from __future__ import annotations

from gradsync.kernels import Form, Track
from gradsync.plan.content import GRADIENT, MOMENTUM, NORM, PARAMETER, Content, Part, Parts, Sum


def refuse(form: Form, *, beside: int = 0) -> None:
    """gradient[, norm] -> parameter[, momentum][, `beside` more]."""
    clip, momentum = bool(form.argument("clip")), bool(form.argument("momentum"))
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")
    form.counts(1 + clip, 1 + momentum + beside)
    form.alike(form.reads[0], *form.writes[: 1 + momentum])
    if clip:
        form.long(form.reads[1], 1)


def follow(track: Track, *beside: Content) -> None:
    """A new version of the parameters (and of their momentum) from the gradients; `beside`: what it depends on too."""
    gradient = track.read(0)
    state = [track.held(i) for i in range(1 + bool(track.op.arguments.get("momentum")))]
    norm = track.read(1)[0].content if track.op.arguments.get("clip") else None
    new: list[Parts] = [[] for _ in state]
    for low, high, found, (parameter, *momentum) in track.gradients(gradient, *state):
        for content, kind in zip((parameter, *momentum), (PARAMETER, MOMENTUM), strict=False):
            if content.kind != kind:
                track.fail(f"updates a {kind} and finds {content.kind}")
            if content.shift != parameter.shift:
                track.fail(f"takes the {kind} of other elements")
            if content.key != parameter.key:
                track.fail(f"takes the {kind} of another version of the parameters")
        origin = low + (parameter.shift or 0)
        if norm is not None:
            refuse_norm(track, norm, found, origin, origin + high - low)
        version = track.version(
            *(track.op.kernel, tuple(sorted(track.op.arguments.items())), found, norm, beside),
            *(content.key for content in (parameter, *momentum)),
        )
        track.applied(low, high, origin, found, parameter, version)
        for parts, content in zip(new, (parameter, *momentum), strict=True):
            parts.append(Part(low, high, content._replace(key=version)))
    for number, parts in enumerate(new):
        track.put(number, parts)


def refuse_norm(track: Track, norm: Content, found: Sum, start: int, stop: int) -> None:
    """Raises unless it is the norm of all gradients of the same ranks, passes and weight, and of the very ones here."""
    if norm.kind != NORM:
        track.fail(f"clips to a norm and finds {norm.kind}")
    position, here = 0, start
    for low, high, kind, of in norm.key:
        alike = low == position and kind == GRADIENT and (of.tokens, of.weight) == (found.tokens, found.weight)
        position = high if alike else -1
        if low <= here < high and of == found:
            here = high
    if position != track.elements or here < stop:
        track.fail("clips with the norm of something else than the gradients that it applies, of all layers")

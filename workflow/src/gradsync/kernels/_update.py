"""Updates of parameters from gradients: which ranges they take, and what their results hold."""

from __future__ import annotations

from gradsync.kernels import Form, Track
from gradsync.plan.content import GRADIENT, MOMENTUM, NORM, PARAMETER, Content, Part, Parts, Sum


def refuse(form: Form, *, extra: int = 0) -> None:
    """gradient[, norm] -> parameter[, momentum][, `extra` more]."""
    clip, momentum = bool(form.argument("clip")), bool(form.argument("momentum"))
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")
    form.counts(1 + clip, 1 + momentum + extra)
    form.alike(form.reads[0], *form.writes[: 1 + momentum])
    if clip:
        form.long(form.reads[1], 1)


def follow(track: Track, *others: Content) -> None:
    """A new version of the parameters (and of their momentum) from the gradients; it depends on `others` too."""
    gradient = track.read(0)
    state = [track.held(i) for i in range(1 + bool(track.op.arguments.get("momentum")))]
    norm = track.read(1)[0].content if track.op.arguments.get("clip") else None
    new: list[Parts] = [[] for _ in state]
    for low, high, summed, (parameter, *momentum) in track.gradients(gradient, *state):
        for content, kind in zip((parameter, *momentum), (PARAMETER, MOMENTUM), strict=False):
            if content.kind != kind:
                track.fail(f"updates a {kind} and finds {content.kind}")
            if content.shift != parameter.shift:
                track.fail(f"takes the {kind} of other elements")
            if content.key != parameter.key:
                track.fail(f"takes the {kind} of another version of the parameters")
        origin = low + (parameter.shift or 0)
        if norm is not None:
            refuse_norm(track, norm, summed, origin, origin + high - low)
        version = track.version(
            *(track.op.kernel, tuple(sorted(track.op.arguments.items())), summed, norm, others),
            *(content.key for content in (parameter, *momentum)),
        )
        track.applied(low, high, origin, summed, parameter, version)
        for parts, content in zip(new, (parameter, *momentum), strict=True):
            parts.append(Part(low, high, content._replace(key=version)))
    for number, parts in enumerate(new):
        track.put(number, parts)


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

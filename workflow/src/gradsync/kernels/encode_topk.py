"""Exact top-k with error feedback: the k largest of gradient + residual are sent, the others stay in the residual."""

from __future__ import annotations

import numpy as np

from gradsync.kernels import INTEGERS, Array, Form, Message, Track, whole_passes
from gradsync.plan.content import GRADIENT, INDICES, RESIDUAL, VALUES, Content, Part, together

KEEPS = ("residual",)


def compute(reads: list[Array], writes: list[Array]) -> None:
    """reads: gradient; writes: values, indices, residual. k = len(values); of equal magnitudes the first are taken.

    sum(sent) + residual = gradient + old residual. The gradient is left as it is.
    """
    (gradient,) = reads
    values, indices, residual = writes
    residual += gradient
    chosen = np.argsort(-abs(residual), kind="stable")[: len(values)]
    indices[:] = chosen
    values[:] = residual[chosen]
    residual[chosen] = 0


def refuse(form: Form) -> None:
    """As many values as indices, a residual as long as the gradient."""
    form.counts(1, 3)
    values, indices, residual = form.writes
    form.alike(*form.reads, residual)
    form.alike(values, indices, types=None)
    form.alike(indices, types=INTEGERS)
    if indices.dtype == "int32" and residual.elements > 1 << 31:
        form.fail(f"can't count {residual.elements} elements in {indices.dtype}")
    if values.dtype != residual.dtype:
        form.fail(f"sends values of the gradient's type, {residual.dtype}")
    if residual.role != "residual":
        form.fail(f"keeps what it doesn't send in a buffer of role residual, not {residual.role}")
    form.shorter(values, residual)


def follow(track: Track) -> None:
    """A message of its own, and a residual that nothing has used before."""
    gradient, residual = track.read(0), track.held(2)
    contained = 0  # tokens whose gradients are in the message or the residual
    for _, _, (new, old) in together([gradient, residual]):
        if new.kind != GRADIENT or old.kind != RESIDUAL or new.shift != old.shift:
            track.fail(f"adds the residual of the same gradients to them, and finds {new.kind} and {old.kind}")
        before = track.message(old.key).contained if old.key else 0
        if before & new.key.tokens:
            track.fail("encodes gradients a second time, which are in the residual already")
        contained |= before | new.key.tokens
    values = track.held(0)[-1].stop
    message = track.version("encode", track.op.kernel, values, tuple(gradient), tuple(residual))
    track.sent(message, Message(gradient, values, contained))
    for number, kind in enumerate((VALUES, INDICES)):
        parts = track.held(number)
        track.put(number, [Part(parts[0].start, parts[-1].stop, Content(kind, message, 0))])
    kept = [part._replace(content=part.content._replace(key=message)) for part in residual]
    track.put(2, kept)


def moved(form: Form) -> float:
    """Reads gradient and residual, writes the residual and the message; the selection is on top."""
    return whole_passes(form) + form.writes[2].bytes

"""The state of a loss scale: what it holds, how a step moves it (torch's GradScaler), and by which norm it may move."""

from __future__ import annotations

from math import inf

from gradsync.kernels import Array, Form, Operand, Track
from gradsync.plan.content import GRADIENT, NORM, SCALER, Content

ELEMENTS = 3  # loss scale, good steps in a row, skipped steps


def finite(norm: Array) -> bool:
    """Whether a norm, its first element, is a number."""
    return float(norm[0]) < inf  # false for NaN


def move(scaler: Array, good: bool, growth_interval: float) -> None:
    """Count a step: one that was not `good` halves the loss scale, `growth_interval` good ones in a row double it."""
    if not good:
        scaler[0] *= 0.5
        scaler[1] = 0
        scaler[2] += 1
        return
    scaler[1] += 1
    if scaler[1] >= growth_interval:
        scaler[0] *= 2
        scaler[1] = 0


def refuse(form: Form, operand: Operand) -> None:
    """Raises InputError unless an operand is a scaler."""
    if operand.role != "scaler":
        form.fail(f"needs a buffer of role scaler, not {operand.ref.buffer!r}, a {operand.role}")
    form.long(operand, ELEMENTS)


def decided(track: Track, number: int, scaler: Content) -> None:
    """Raises unless that operand is the norm of all ranks' gradients under this loss scale, by which all decide."""
    norm = track.read(number)[0].content
    if scaler.kind != SCALER:
        track.fail(f"needs the scaler and finds {scaler.kind}")
    if norm.kind != NORM:
        track.fail(f"decides by a norm and finds {norm.kind}")
    first, stop = norm.key[0][3], 0
    for low, high, kind, key in norm.key:
        if low == stop and kind == GRADIENT and (key.tokens, key.weight) == (first.tokens, first.weight):
            stop = high
    if stop != track.elements:
        track.fail("decides by the norm of something else than the gradients of all layers")
    track.decides(number, scaler, first)

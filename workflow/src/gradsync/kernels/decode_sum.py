"""The sum of sparse messages as a dense gradient; equal indices add up."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradsync.kernels import FLOATS, INTEGERS, Array, Form, Track
from gradsync.plan.content import GRADIENT, INDICES, VALUES, Content, Part, Parts, together


def compute(reads: list[Array], writes: list[Array]) -> None:
    """reads: values and indices of all ranks; writes: gradient."""
    values, indices = reads
    gradient = writes[0]
    gradient[:] = 0
    np.add.at(gradient, indices, values)


def refuse(form: Form) -> None:
    """As many values as indices."""
    form.counts(2, 1)
    form.apart()
    values, indices = form.reads
    form.alike(values, indices, types=None)
    form.alike(indices, types=INTEGERS)
    form.alike(values, types=FLOATS)
    if values.dtype != form.writes[0].dtype:
        form.fail(f"sums values of the gradient's type, {form.writes[0].dtype}")


def follow(track: Track) -> None:
    """The gradients of every message that has come whole, values and indices alike, each once."""
    messages: list[int] = []
    for low, high, (value, index) in together([track.read(0), track.read(1)]):
        if (value.kind, index.kind) != (VALUES, INDICES) or value[1:] != index[1:]:
            track.fail(f"decodes the values and the indices of one message, and finds {value.kind} and {index.kind}")
        message = int(value.key)
        if (value.shift, high - low) != (-low, track.message(message).lengths[0]):
            track.fail("decodes a part of a message")
        messages.append(message)
    put_sum(track, messages)


def put_sum(track: Track, messages: list[int]) -> None:
    """What is written holds the gradients of these messages, which have come whole."""
    for message in messages:
        track.received(message)
    target = track.held(0)
    if not messages:
        track.fail("decodes no message, and clears what it writes")
    length = target[-1].stop if target else 0
    sums: list[Parts] = []
    for message in messages:
        gradient = track.message(message).gradient
        if gradient[-1].stop != length:
            track.fail("decodes a message of other gradients than those that it writes")
        sums.append([_sparse(part, message) for part in gradient])
    track.put(0, track.sum(sums))


def _sparse(part: Part, message: int) -> Part:
    key = part.content.key._replace(sparse=part.content.key.sparse | {message})
    return part._replace(content=Content(GRADIENT, key, part.content.shift))


def moved(form: Form) -> float:
    """Clears the gradient, reads the message, and reads and writes an element for each of its values."""
    return float(moved_bytes(form.writes[0].bytes, form.reads[0].bytes, form.reads[1].bytes))


def moved_bytes(gradient: Any, values: Any, indices: Any) -> Any:
    """What is read and written for a gradient and for messages of so many bytes."""
    return gradient + 3 * values + indices

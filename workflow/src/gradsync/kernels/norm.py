"""Euclidean norms, of all gradients for clipping."""

from __future__ import annotations

from typing import Any

from gradsync.kernels import FLOATS, Array, Form, Track
from gradsync.plan import DTYPE_BYTES
from gradsync.plan.content import NORM, Content, Elements, Part, Parts, together

DEALT = 1


def compute(reads: list[Array], writes: list[Array]) -> None:
    """writes[0][i] = norm of reads[i], summed in the type of writes."""
    for i, array in enumerate(reads):
        writes[0][i] = length(array, writes[0].dtype)


def length(array: Array, dtype: Any) -> float:
    """The norm of an array, summed in a type."""
    wide = array.astype(dtype, copy=False)
    return float((wide * wide).sum() ** 0.5)


def refuse(form: Form) -> None:
    """An element for each range."""
    form.counts(max(1, len(form.reads)), 1)
    form.apart()
    for each in (*form.reads, *form.writes):
        form.alike(each, types=FLOATS)
    refuse_type(form)


def refuse_type(form: Form) -> None:
    """Raises InputError unless norms have the type of what they are of, or float32 if that is wider."""
    widest = max((each.dtype for each in form.reads), key=DTYPE_BYTES.__getitem__)
    if form.writes[0].dtype != wide(widest):
        form.fail(f"of {widest} is not a {form.writes[0].dtype}: digits, or large norms, would be lost")


def wide(dtype: str) -> str:
    """The type of norms of what has that type."""
    return dtype if DTYPE_BYTES[dtype] >= DTYPE_BYTES["float32"] else "float32"


def follow(track: Track) -> None:
    """Norms of just these elements of just these versions or sums."""
    norms = [Part(i, i + 1, Content(NORM, described(track, i))) for i in range(len(track.op.reads))]
    track.put(0, norms)


def described(track: Track, number: int) -> tuple[Elements, ...]:
    """Of which elements of what the norm of an operand is."""
    return elements(track.read(number))


def elements(parts: Parts) -> tuple[Elements, ...]:
    """The runs of elements in a range."""
    runs: list[Elements] = []
    for low, high, (content,) in together([parts]):
        start = low + (content.shift or 0)
        if runs and runs[-1][1:] == (start, content.kind, content.key):
            start = runs.pop()[0]
        runs.append((start, start + high - low, content.kind, content.key))
    return tuple(runs)


def moved(form: Form) -> float:
    """Reads everything once."""
    return sum(each.bytes for each in form.reads)

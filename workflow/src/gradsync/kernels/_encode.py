"""Encode: the elements that a compressor selects are sent; with error feedback the others stay in a residual.

Every compressor that selects has a kernel `encode_NAME`, which this module makes. With a residual (error feedback:
Seide et al., Interspeech 2014; Stich et al., NeurIPS 2018) it selects from gradient + residual; without one, what isn't
sent is lost.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from gradsync import compressors
from gradsync.kernels import ENCODE, INTEGERS, Array, Form, Message, Track
from gradsync.plan.content import GRADIENT, INDICES, RESIDUAL, VALUES, Content, Part, Parts, together

RESIDUAL_AT = 2  # of what is written


class Encode:
    """The kernel of one compressor, with what `kernels/__init__.py` asks of a module."""

    KEEPS = ("residual",)

    def __init__(self, compressor: str):
        self.select = compressors.get(compressor).select

    def compute(self, reads: list[Array], writes: list[Array], *, turn: int) -> None:
        """reads: gradient; writes: values, indices[, residual]. k = len(values).

        With a residual, sum(sent) + residual = gradient + old residual. The gradient is left as it is. If it has less
        than k elements, zeros fill the message.
        """
        values, indices, *residual = writes
        source = reads[0]
        if residual:
            source = residual[0]
            source += reads[0]
        k = min(len(values), len(source))
        chosen = self.select(source, k, turn=turn)
        indices[:k], indices[k:] = chosen, 0
        values[:k], values[k:] = source[chosen], 0
        if residual:
            source[chosen] = 0

    def refuse(self, form: Form) -> None:
        """As many values as indices, a residual as long as the gradient."""
        form.counts(1, 3 if len(form.writes) > RESIDUAL_AT else 2)
        (gradient,), (values, indices, *residual) = form.reads, form.writes
        form.alike(gradient, *residual)
        form.alike(values, indices, types=None)
        form.alike(indices, types=INTEGERS)
        if indices.dtype == "int32" and gradient.elements > 1 << 31:
            form.fail(f"can't count {gradient.elements} elements in {indices.dtype}")
        if values.dtype != gradient.dtype:
            form.fail(f"sends values of the gradient's type, {gradient.dtype}")
        refuse_residual(form)
        form.shorter(values, gradient)

    def follow(self, track: Track) -> None:
        """A message of its own, and a residual that nothing has used before."""
        follow(track, (VALUES, INDICES))

    def moved(self, form: Form) -> float:
        """Reads gradient and residual, writes the residual and the message; the selection is on top."""
        return float(moved_bytes(form.reads[0].bytes, self.selected(form), len(form.writes) > RESIDUAL_AT))

    def selected(self, form: Form) -> float:
        """The message: the more is selected, the longer that takes for each element of the gradient."""
        return sum(each.bytes for each in form.writes[:RESIDUAL_AT])


def refuse_residual(form: Form) -> None:
    """Raises InputError if what isn't sent is kept where gradients don't stay."""
    for each in form.writes[RESIDUAL_AT:]:
        if each.role != "residual":
            form.fail(f"keeps what it doesn't send in a buffer of role residual, not {each.role}")


def follow(track: Track, kinds: tuple[str, str], code: Hashable = None) -> None:
    """A message of its own, in two ranges that hold such contents, and a residual that nothing has used before."""
    gradient = track.read(0)
    residual = track.held(RESIDUAL_AT) if len(track.op.writes) > RESIDUAL_AT else []
    contained = contained_in(track, gradient, residual)
    lengths = tuple(track.held(number)[-1].stop for number in range(RESIDUAL_AT))
    message = track.version("encode", track.op.kernel, code, lengths, tuple(gradient), tuple(residual))
    track.sent(message, Message(gradient, lengths, contained, code))
    for number, kind in enumerate(kinds):
        parts = track.held(number)
        track.put(number, [Part(parts[0].start, parts[-1].stop, Content(kind, message, 0))])
    if residual:
        track.put(RESIDUAL_AT, [part._replace(content=part.content._replace(key=message)) for part in residual])


def moved_bytes(gradient: Any, message: Any, feedback: bool) -> Any:
    """What is read and written for a gradient and a message of so many bytes; a residual is both."""
    return gradient * (3 if feedback else 1) + message


def contained_in(track: Track, gradient: Parts, residual: Parts) -> int:
    """Tokens whose gradients are in the message or the residual; raises if a gradient would be in there twice."""
    contained = 0
    for _, _, (new, *old) in together([gradient, residual] if residual else [gradient]):
        if new.kind != GRADIENT:
            track.fail(f"encodes gradients, and finds {new.kind}")
        for before in old:
            if before.kind != RESIDUAL or new.shift != before.shift:
                track.fail(f"adds the residual of the same gradients to them, and finds {before.kind}")
            tokens = track.message(before.key).contained if before.key else 0
            if tokens & new.key.tokens:
                track.fail("encodes gradients a second time, which are in the residual already")
            contained |= tokens
        contained |= new.key.tokens
    return contained


def kernels() -> dict[str, Any]:
    """Name -> the kernel, of every compressor that selects."""
    return {f"{ENCODE}{name}": Encode(name) for name in compressors.selecting()}

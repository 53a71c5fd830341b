"""Codes: every element is sent in a few bits; with error feedback what these don't say stays in a residual.

Every compressor that makes codes has kernels `encode_NAME` and `decode_NAME`, which this module makes. A rank's code is
as long as that of the longest slice that a rank has of a message, which is `longest` elements.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from gradsync import compressors
from gradsync.kernels import DECODE, ENCODE, FLOATS, Array, Form, Operand, Track
from gradsync.kernels._encode import follow, moved_bytes, refuse_residual
from gradsync.kernels.decode_sum import put_sum
from gradsync.plan.content import CODES, SCALES

RESIDUAL_AT = 2  # of what is written
BYTE = "uint8"
Code = tuple[str, tuple[tuple[str, float], ...]]  # a compressor, and its options if they matter to who decodes


class Encode:
    """The kernel that encodes by one compressor, with what `kernels/__init__.py` asks of a module."""

    KEEPS = ("residual",)

    def __init__(self, compressor: str):
        self.compressor, module = compressor, compressors.get(compressor)
        self.compute = encoder(module.encode, module.decode)

    def refuse(self, form: Form) -> None:
        """A code of the longest slice, a residual as long as the gradient."""
        form.counts(1, 3 if len(form.writes) > RESIDUAL_AT else 2)
        (gradient,), (codes, scales, *residual) = form.reads, form.writes
        form.alike(gradient, *residual)
        refuse_residual(form)
        refuse_code(form, self.compressor, longest(form, gradient), gradient.dtype, codes, scales)

    def follow(self, track: Track) -> None:
        """A message of its own, and a residual that nothing has used before."""
        follow(track, (CODES, SCALES), described(self.compressor, track))

    def moved(self, form: Form) -> float:
        """Reads gradient and residual, writes the residual and the code."""
        codes, scales, *residual = form.writes
        return float(moved_bytes(form.reads[0].bytes, codes.bytes + scales.bytes, bool(residual)))


class Decode:
    """The kernel that sums what the codes of one compressor stand for."""

    def __init__(self, compressor: str):
        self.compressor, module = compressor, compressors.get(compressor)
        self.compute = decoder(compressor, module.decode)

    def refuse(self, form: Form) -> None:
        """Whole codes of the longest slice."""
        form.counts(2, 1)
        codes, scales, gradient = *form.reads, form.writes[0]
        form.alike(gradient, types=FLOATS)
        if (slice_ := longest(form, gradient)) != form.argument("longest"):
            form.fail(f"has codes of {form.argument('longest'):g} elements, and a rank decodes {slice_} at most")
        refuse_code(form, self.compressor, slice_, gradient.dtype, codes, scales, several=True)

    def follow(self, track: Track) -> None:
        """The gradients of every message that has come whole, its codes and its scales, each once."""
        messages = []
        for number, kind in enumerate((CODES, SCALES)):
            numbers = []
            for low, high, content in track.read(number):
                if content.kind != kind:
                    track.fail(f"decodes {kind}, and finds {content.kind}")
                if (content.shift, high - low) != (-low, track.message(content.key).lengths[number]):
                    track.fail("decodes a part of a message")
                numbers.append(int(content.key))
            messages.append(numbers)
        if messages[0] != messages[1]:
            track.fail("decodes the codes and the scales of one message, and finds those of several")
        code = described(self.compressor, track)
        for each in messages[0]:
            if track.message(each).code != code:
                encoded = track.message(each).code
                track.fail(f"decodes by {_shown(code)} what was encoded by {_shown(encoded)}")
        put_sum(track, messages[0])

    def moved(self, form: Form) -> float:
        """Clears the gradient, and for each code reads that and adds to the gradient."""
        codes, scales = form.reads
        elements = form.argument("longest")
        taken = compressors.size(self.compressor, elements, form.op.arguments)
        terms = scales.elements / scales.pieces / taken.scales
        return float(decoded_bytes(form.writes[0].bytes, codes.bytes + scales.bytes, terms))


def described(compressor: str, track: Track) -> Code:
    """What must be the same where a message is encoded and where it is decoded."""
    options = compressors.options(compressor) | track.op.arguments
    return compressor, tuple(compressors.asked(compressors.get(compressor).decode, options).items())


def _shown(code: Code) -> str:
    return ", ".join((code[0], *(f"{name} {value:g}" for name, value in code[1])))


def decoded_bytes(gradient: Any, messages: Any, terms: Any) -> Any:
    """What is read and written for a gradient of so many bytes, and so many codes, which together take `messages`."""
    return messages + gradient * (1 + 2 * terms)


def encoder(encode: Callable[..., None], decode: Callable[..., None]) -> Callable[..., None]:
    """The kernel of what encodes and decodes; its arguments are theirs."""

    def compute(reads: list[Array], writes: list[Array], **arguments: Any) -> None:
        """reads: gradient; writes: codes, scales[, residual]. The gradient is left as it is.

        With a residual, what the code stands for + residual = gradient + old residual.
        """
        codes, scales, *residual = writes
        source = reads[0]
        if residual:
            source = residual[0]
            source += reads[0]
        encode(source, codes, scales, **arguments)
        if residual:
            sent = source * 0
            decode(codes, scales, sent, **compressors.asked(decode, arguments))
            source -= sent

    return _with_arguments(compute, *inspect.signature(encode).parameters.values())


def decoder(compressor: str, decode: Callable[..., None]) -> Callable[..., None]:
    """The kernel of what decodes, whose arguments are its own, and `longest`."""

    def compute(reads: list[Array], writes: list[Array], *, longest: float, **arguments: Any) -> None:
        """reads: codes and scales of all ranks; writes: gradient, their sum in order of rank."""
        gradient = writes[0]
        gradient[:] = 0
        size = compressors.size(compressor, int(longest), arguments)
        for place in range(len(reads[1]) // size.scales):
            own = [each[place * length : (place + 1) * length] for each, length in zip(reads, size, strict=True)]
            decode(*own, gradient, **arguments)

    needed = inspect.Parameter("longest", inspect.Parameter.KEYWORD_ONLY)
    return _with_arguments(compute, *inspect.signature(decode).parameters.values(), needed)


def _with_arguments(compute: Callable[..., None], *parameters: inspect.Parameter) -> Callable[..., None]:
    """The function, which says that it has these keyword arguments."""
    own = inspect.signature(compute)
    named = [each for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    operands = [each for each in own.parameters.values() if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    compute.__signature__ = own.replace(parameters=[*operands, *named])  # type: ignore[attr-defined]
    return compute


def longest(form: Form, gradient: Operand) -> int:
    """The most elements that a rank has of a range."""
    bounds = (form.plan.mesh.bounds(gradient.ref, rank) for rank in range(form.plan.ranks))
    return max(stop - start for start, stop in bounds)


def refuse_code(
    form: Form, compressor: str, elements: int, dtype: str, codes: Operand, scales: Operand, several: bool = False
) -> None:
    """Raises InputError for ranges that are no code of so many elements, or no `several` of them."""
    if codes.dtype != BYTE or scales.dtype != dtype:
        form.fail(f"has codes of {BYTE} and scales of the gradient's type, {dtype}: not {codes.dtype}, {scales.dtype}")
    size = compressors.size(compressor, elements, form.op.arguments)
    for rank in range(form.plan.ranks):
        lengths = [stop - start for start, stop in (form.plan.mesh.bounds(each.ref, rank) for each in (codes, scales))]
        terms = lengths[1] // size.scales if several else 1
        if not terms or lengths != [terms * each for each in size]:
            form.fail(
                f"has {lengths[0]} bytes and {lengths[1]} scales on rank {rank}: a code of {elements} elements takes "
                f"{size.codes} and {size.scales}"
            )


def kernels() -> dict[str, Any]:
    """Name -> the kernel, of every compressor that makes codes."""
    made: dict[str, Any] = {f"{ENCODE}{name}": Encode(name) for name in compressors.coding()}
    return made | {f"{DECODE}{name}": Decode(name) for name in compressors.coding()}

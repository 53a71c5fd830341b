"""Updates whose rate is each tensor's own: which ranges they take, and of what the ratio must be that they follow.

Such an update works on whole tensors, one after the other. It reads the gradient of each, followed by the tensor's
ratio, and writes the parameter of each, followed by what is kept of it. A ratio of norms over a part of a tensor, or
over two of them, would be another method.

Ratios are computed before, by a kernel that reads so many operands of each tensor and writes an element for each. They
may be dealt to ranks, each of which computes those of its own piece (`transforms/pto.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gradsync.kernels import Array, Form, Operand, Track, _update, arguments
from gradsync.kernels.norm import refuse_type
from gradsync.plan.content import RATIO, Content, Part

READS = 2  # operands of each tensor: its gradient, its ratio


def groups(reads: list[Array], writes: list[Array]) -> Iterator[tuple[Array, Array, list[Array]]]:
    """(gradient, ratio, [parameter, what is kept of it]) of each tensor."""
    each = len(writes) * READS // len(reads)
    for number in range(len(reads) // READS):
        yield reads[READS * number], reads[READS * number + 1], writes[each * number : each * (number + 1)]


def refuse(form: Form, *, moments: int) -> None:
    """gradient, ratio -> parameter and so many moments of it, for each of one or more tensors."""
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")
    tensors = max(1, len(form.reads) // READS)
    form.counts(READS * tensors, (1 + moments) * tensors)
    _refuse_parts(form, form.reads[::READS])
    for gradient, ratio, state in groups(form.reads, form.writes):
        form.alike(gradient, *state)
        form.long(ratio, 1)


def refuse_ratios(form: Form, operands: int) -> None:
    """So many operands of each tensor -> a ratio for each."""
    tensors = max(1, len(form.reads) // operands)
    form.counts(operands * tensors, 1)
    _refuse_parts(form, form.reads[::operands])
    for number in range(tensors):
        form.alike(*form.reads[operands * number : operands * (number + 1)])
    refuse_type(form)
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")


def _refuse_parts(form: Form, operands: Sequence[Operand]) -> None:
    """Raises InputError unless each range is one whole tensor, on every rank."""
    tensors = {(tensor.start, tensor.stop) for tensor in form.plan.tensors}
    for ref in (operand.ref for operand in operands):
        if ref.mine or (ref.start, ref.stop) not in tensors:
            form.fail(f"works on whole tensors, one by one: {ref.buffer}[{ref.start}:{ref.stop}] is none")


def shared(track: Track, names: tuple[str, ...]) -> tuple[float, ...]:
    """Values of arguments that ratios and the update by them must have alike."""
    known = arguments(track.op.kernel)
    return tuple(track.op.arguments.get(name, known[name].default) for name in names)


def follow_ratios(track: Track, operands: int, described: Callable[..., object]) -> None:
    """Ratios, each of what is `described` of its tensor's operands, and of all arguments."""
    how = tuple(sorted(track.op.arguments.items()))
    ratios: list[Part] = []
    for first in range(0, len(track.op.reads), operands):
        of_tensor = described(track, *(track.read(first + i) for i in range(operands)))
        ratios.append(Part(len(ratios), len(ratios) + 1, Content(RATIO, (of_tensor, how))))
    track.put(0, ratios)


def follow(track: Track, *, moments: int, described: Callable[..., object]) -> None:
    """New versions of the parameters and their moments, if the ratios are those of what is there.

    `described`: what a ratio is of, given parameter, gradient and moments.
    """
    for number in range(len(track.op.reads) // READS):
        first = number * (1 + moments)
        gradient, (ratio,) = track.read(READS * number), track.read(READS * number + 1)
        parameter, *kept = (track.held(first + i) for i in range(1 + moments))
        expected = described(track, parameter, gradient, *kept)
        if ratio.content.kind != RATIO or ratio.content.key[0] != expected:
            track.fail("needs the ratio of the parameters and of the gradients that it works on, of the same layer")
        _update.follow(track, ratio.content, moments=moments, read=READS * number, write=first)


def moved(form: Form) -> float:
    """Reads gradients, parameters and their moments, writes the last two; ratios are next to nothing."""
    return sum(each.bytes for each in form.reads[::READS]) + 2 * sum(each.bytes for each in form.writes)


def moved_by_ratios(form: Form) -> float:
    """Reads all operands once and writes the ratios, on the rank that has most."""
    return form.most(lambda operand: operand.bytes) + form.writes[0].bytes

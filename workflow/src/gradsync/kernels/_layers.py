"""Updates whose rate is each tensor's own: which ranges they take, and of what the norms must be that they follow.

Such an update works on whole tensors, one after the other. It reads the gradient of each, followed by two norms, and
writes the parameter of each, followed by what is kept of it. A norm over a part of a tensor, or over two of them, would
be another method.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gradsync.kernels import Array, Form, Operand, Track, _update
from gradsync.plan.content import NORM, Content, Parts

NORMS = 2  # of each tensor: of its parameters, and of what they are moved by
READS = 2  # operands of each tensor: its gradient, its norms


def groups(reads: list[Array], writes: list[Array]) -> Iterator[tuple[Array, Array, list[Array]]]:
    """(gradient, norms, [parameter, what is kept of it]) of each tensor."""
    each = len(writes) * READS // len(reads)
    for number in range(len(reads) // READS):
        yield reads[READS * number], reads[READS * number + 1], writes[each * number : each * (number + 1)]


def ratio(size: float, length: float) -> float:
    """size / length, or 1 if either is 0: parameters that begin at 0 would stay there else."""
    return size / length if size > 0 and length > 0 else 1.0


def refuse(form: Form, *, moments: int) -> None:
    """gradient, norms -> parameter and so many moments of it, for each of one or more tensors."""
    if form.argument("scale") <= 0:
        form.fail("needs a scale above 0")
    tensors = max(1, len(form.reads) // READS)
    form.counts(READS * tensors, (1 + moments) * tensors)
    refuse_parts(form, form.reads[::READS])
    for gradient, norms, state in groups(form.reads, form.writes):
        form.alike(gradient, *state)
        form.long(norms, NORMS)


def refuse_parts(form: Form, operands: Sequence[Operand]) -> None:
    """Raises InputError unless each range is one whole tensor, on every rank."""
    tensors = {(tensor.start, tensor.stop) for tensor in form.plan.tensors}
    for ref in (operand.ref for operand in operands):
        if ref.mine or (ref.start, ref.stop) not in tensors:
            form.fail(f"works on whole tensors, one by one: {ref.buffer}[{ref.start}:{ref.stop}] is none")


def follow(track: Track, *, moments: int, expected: Callable[[Parts, list[Parts]], list[object]]) -> None:
    """New versions of the parameters and their moments, if the norms are those of what is there.

    `expected`: what both norms are of, given what gradient and state hold (`Content.key`).
    """
    for number in range(len(track.op.reads) // READS):
        first = number * (1 + moments)
        gradient, norms = track.read(READS * number), [part.content for part in track.read(READS * number + 1)]
        keys = expected(gradient, [track.held(first + i) for i in range(1 + moments)])
        if norms != (wanted := [Content(NORM, key) for key in keys]):
            track.fail("needs the norms of the parameters and of the gradients that it works on, of the same layer")
        _update.follow(track, *wanted, moments=moments, read=READS * number, write=first)


def moved(form: Form) -> float:
    """Reads gradients, parameters and their moments, writes the last two; norms are next to nothing."""
    return sum(each.bytes for each in form.reads[::READS]) + 2 * sum(each.bytes for each in form.writes)

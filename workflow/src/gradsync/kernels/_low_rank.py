"""Factors of matrices of gradients: which ranges such kernels take, and what these must hold.

A kernel works on one or more matrices, each a whole tensor of n m elements, with its factors P of n r and Q of m r.
These lengths tell n, m and r, so that a plan says with them what shape a tensor has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NoReturn

from gradsync.compressors import powersgd
from gradsync.compressors.powersgd import Matrix
from gradsync.kernels import FLOATS, Array, Form, Operand, Track
from gradsync.plan.content import Content, Part

KEPT = "gradient and residual"  # what a matrix is of, if it isn't the gradient alone
FEEDBACK = 3  # ranges that are written of each matrix if what isn't sent is kept: the last is the residual


def groups(reads: Sequence[Array], writes: Sequence[Array]) -> Iterator[tuple[Array, list[Array]]]:
    """Of each matrix what is read and what is written."""
    each = len(writes) // len(reads)
    for number, read in enumerate(reads):
        yield read, list(writes[each * number : each * (number + 1)])


def matrix_of(elements: Array, left: Array, right: Array) -> Matrix:
    """The shape of a matrix, by the lengths of its ranges; raises ValueError for those of none."""
    found = powersgd.of_lengths(len(elements), len(left), len(right))
    if found is None:
        raise ValueError(f"{len(elements)} elements with factors of {len(left)} and {len(right)} are no matrix")
    return found


def refuse(form: Form, *, least: int) -> None:
    """Raises InputError unless it reads a range of each matrix, and writes `least` or more, alike for all."""
    count = max(1, len(form.reads))
    form.counts(count, count * (FEEDBACK if len(form.writes) >= FEEDBACK * count else least))


def refuse_matrix(form: Form, values: Operand, left: Operand, right: Operand) -> None:
    """Raises InputError for ranges that are no matrix of gradients, a whole tensor, with its factors."""
    for each in (values, left, right):
        if each.ref.mine:
            form.fail(f"works on whole tensors: a rank has a piece of {each.ref.buffer}")
        form.alike(each, types=FLOATS)
        if each.dtype != values.dtype:
            form.fail(f"has factors of the type of the gradients, {values.dtype}, not {each.dtype}")
    if (values.ref.start, values.ref.stop) not in {(tensor.start, tensor.stop) for tensor in form.plan.tensors}:
        form.fail(f"works on whole tensors: {values.ref.buffer}[{values.ref.start}:{values.ref.stop}] is none")
    if powersgd.of_lengths(values.elements, left.elements, right.elements) is None:
        form.fail(f"has factors of {left.elements} and {right.elements} elements, of no matrix of {values.elements}")
    if right.role != "state":
        form.fail(f"takes a factor that lasts from turn to turn, in a buffer of role state, not {right.role}")


def refuse_residual(form: Form, values: Operand, residual: Sequence[Operand]) -> None:
    """Raises InputError if what isn't sent is kept elsewhere than in the residual of these gradients."""
    for each in residual:
        form.alike(values, each)
        if each.role != "residual" or (each.ref.start, each.ref.stop) != (values.ref.start, values.ref.stop):
            form.fail("keeps what it doesn't send of a tensor in the residual of that tensor")


def rank_of(values: Operand, left: Operand, right: Operand) -> int:
    """The columns of the factors; 1 if they are none of a matrix."""
    found = powersgd.of_lengths(values.elements, left.elements, right.elements)
    return found.rank if found else 1


def whole(track: Track, parts: Sequence[Part], kinds: Sequence[str], verb: str) -> Content:
    """The one content of a range; raises if it holds something else than one of `kinds`."""
    if len(parts) != 1 or parts[0].content.kind not in kinds:
        found = ", ".join(dict.fromkeys(part.content.kind for part in parts))
        track.fail(f"{verb} one {' or '.join(kinds)}, and finds {found}")
    return parts[0].content


def fail_other(track: Track) -> NoReturn:
    """Raises, since ranges of other matrices or messages are mixed up."""
    track.fail("takes factors of another matrix, or of another message")

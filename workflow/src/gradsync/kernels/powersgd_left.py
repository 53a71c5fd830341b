"""PowerSGD, the first half of a message: P = M Q of each matrix (`compressors/powersgd.py`).

M is the gradient, and with error feedback the residual too, in whose place it lies until the message has been decoded.
"""

from __future__ import annotations

from gradsync.compressors import powersgd
from gradsync.kernels import Array, Form, Message, Track, _low_rank
from gradsync.kernels._encode import contained_in
from gradsync.plan.content import GRADIENT, LEFT, STATE, UNSENT, Content, Part, Product

KEEPS = ("residual",)


def compute(reads: list[Array], writes: list[Array], *, seed: float = 0, first: float = 0) -> None:
    """reads: of each matrix the gradient; writes: of each P, Q[, residual]. The gradient is left as it is.

    residual += gradient; P = residual Q. A Q of zeros is drawn before; `first`: where the first Q begins among those of
    all matrices.
    """
    place = int(first)
    for gradient, (left, right, *residual) in _low_rank.groups(reads, writes):
        rows, columns, rank = _low_rank.matrix_of(gradient, left, right)
        if not right.any():
            right[:] = powersgd.drawn(len(right), seed=seed, place=place)
        source = gradient
        if residual:
            source = residual[0]
            source += gradient
        left[:] = (source.reshape(rows, columns) @ right.reshape(columns, rank)).reshape(-1)
        place += len(right)


def refuse(form: Form) -> None:
    """Of each matrix the gradient; factors of it, and a residual as long as it."""
    _low_rank.refuse(form, least=2)
    place = int(form.argument("first"))
    for gradient, (left, right, *residual) in _low_rank.groups(form.reads, form.writes):
        _low_rank.refuse_matrix(form, gradient, left, right)
        _low_rank.refuse_residual(form, gradient, residual)
        if right.ref.start != place:
            form.fail(f"draws factors from {place} on, and one begins at {right.ref.start}: ranks may draw others")
        place = right.ref.stop


def follow(track: Track) -> None:
    """Products of this rank's matrices with factors that all ranks must have alike."""
    for number, (_, written) in enumerate(_low_rank.groups(track.op.reads, track.op.writes)):
        first = number * len(written)
        feedback = len(written) == _low_rank.FEEDBACK
        gradient, right = track.read(number), track.held(first + 1)
        held = track.held(first + 2) if feedback else []
        _low_rank.whole(track, right, (STATE,), "multiplies by")
        contained = contained_in(track, gradient, held)
        of = _low_rank.whole(track, gradient, (GRADIENT,), "multiplies")
        message = track.version("matrix", tuple(gradient), tuple(held), tuple(right))
        lengths = tuple(ref.stop - ref.start for ref in written[:2])
        track.sent(message, Message(gradient, lengths, contained, _low_rank.KEPT if feedback else None))
        factor = track.version("factor", tuple(right), tuple(sorted(track.op.arguments.items())))
        product = Product(of.key, frozenset({message}), of.shift or 0, factor)
        track.put(first, [Part(0, lengths[0], Content(LEFT, product, 0))])
        if feedback:
            track.put(first + 2, [Part(0, gradient[-1].stop, Content(UNSENT, message, of.shift))])


def moved(form: Form) -> float:
    """Reads gradient, residual and Q, writes the residual and P."""
    total = 0.0
    for gradient, (left, right, *residual) in _low_rank.groups(form.reads, form.writes):
        total += gradient.bytes * (3 if residual else 1) + left.bytes + right.bytes
    return total

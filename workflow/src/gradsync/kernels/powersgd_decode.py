"""PowerSGD, after its second sum: the gradient is P Q^T, and with error feedback the residual M - P Q^T / ranks."""

from __future__ import annotations

from gradsync.kernels import Array, Form, Track, _low_rank
from gradsync.plan.content import GRADIENT, ORTHONORMAL, RESIDUAL, RIGHT, STATE, UNSENT, Content, Part, Product

KEEPS = ("residual",)


def compute(reads: list[Array], writes: list[Array], *, terms: float) -> None:
    """reads: of each matrix P; writes: of each Q, gradient[, residual]. Q is a sum of so many terms, then their mean.

    gradient = P Q^T, of that sum; residual -= gradient / terms.
    """
    for left, (right, gradient, *residual) in _low_rank.groups(reads, writes):
        rows, columns, rank = _low_rank.matrix_of(gradient, left, right)
        gradient[:] = (left.reshape(rows, rank) @ right.reshape(columns, rank).T).reshape(-1)
        right /= terms
        for each in residual:
            each -= gradient / terms


def refuse(form: Form) -> None:
    """Of each matrix its factors, the gradient, and a residual as long as it."""
    _low_rank.refuse(form, least=2)
    for left, (right, gradient, *residual) in _low_rank.groups(form.reads, form.writes):
        _low_rank.refuse_matrix(form, gradient, left, right)
        _low_rank.refuse_residual(form, gradient, residual)


def follow(track: Track) -> None:
    """The gradients of all ranks, of which a part was sent; the residual is what is left of this rank's matrices."""
    if track.op.arguments["terms"] != track.workers:
        track.fail(f"divides by {track.op.arguments['terms']:g} a sum over {track.workers} ranks")
    for number, (_, written) in enumerate(_low_rank.groups(track.op.reads, track.op.writes)):
        first = number * len(written)
        left = _low_rank.whole(track, track.read(number), (ORTHONORMAL,), "decodes")
        right = _low_rank.whole(track, track.held(first), (RIGHT,), "decodes")
        product: Product = right.key
        length = written[1].stop - written[1].start
        track.complete(product.summed, product.origin, product.origin + length)
        if product.factor != left.key or (left.shift, right.shift) != (0, 0):
            _low_rank.fail_other(track)
        for message in product.messages:
            track.received(message)
        sparse = product.summed._replace(sparse=product.summed.sparse | product.messages)
        track.put(first + 1, [Part(0, length, Content(GRADIENT, sparse, product.origin))])
        track.put(first, [Part(0, written[0].stop - written[0].start, Content(STATE, track.version("mean", right), 0))])
        if len(written) == _low_rank.FEEDBACK:
            held = _low_rank.whole(track, track.held(first + 2), (UNSENT,), "takes what was sent from")
            if held.key not in product.messages:
                _low_rank.fail_other(track)
            track.put(first + 2, [Part(0, length, Content(RESIDUAL, held.key, held.shift))])


def moved(form: Form) -> float:
    """Reads P, Q and the residual, writes the mean Q, the gradient and the residual."""
    total = 0.0
    for left, (right, gradient, *residual) in _low_rank.groups(form.reads, form.writes):
        total += left.bytes + 2 * right.bytes + gradient.bytes * (3 if residual else 1)
    return total

"""PowerSGD, between its two sums: columns of the sum of P become orthonormal, and Q = M^T P of each matrix."""

from __future__ import annotations

import numpy as np

from gradsync.compressors import powersgd, refuse_infinite
from gradsync.kernels import Array, Form, Track, _low_rank
from gradsync.plan.content import GRADIENT, LEFT, ORTHONORMAL, RIGHT, UNSENT, Content, Part, Product


def compute(reads: list[Array], writes: list[Array]) -> None:
    """reads: of each matrix M, which is the residual or the gradient; writes: of each P and Q.

    Raises RunError for a P that is not finite.
    """
    for source, (left, right) in _low_rank.groups(reads, writes):
        rows, columns, rank = _low_rank.matrix_of(source, left, right)
        refuse_infinite("powersgd", float(np.abs(left).max()))
        left[:] = powersgd.orthonormal(left.reshape(rows, rank)).reshape(-1)
        right[:] = (source.reshape(rows, columns).T @ left.reshape(rows, rank)).reshape(-1)


def refuse(form: Form) -> None:
    """Of each matrix its elements, and its factors."""
    form.counts(max(1, len(form.reads)), 2 * max(1, len(form.reads)))
    for source, (left, right) in _low_rank.groups(form.reads, form.writes):
        _low_rank.refuse_matrix(form, source, left, right)


def follow(track: Track) -> None:
    """An orthonormal factor of the matrices of all ranks, and this rank's products with it."""
    for number, (read, (left, right)) in enumerate(_low_rank.groups(track.op.reads, track.op.writes)):
        source = track.read(number)
        of = _low_rank.whole(track, source, (UNSENT, GRADIENT), "multiplies")
        summed = _low_rank.whole(track, track.held(2 * number), (LEFT,), "makes orthonormal")
        product: Product = summed.key
        track.complete(product.summed, product.origin, product.origin + read.stop - read.start)
        if of.kind == UNSENT:
            own = product.messages & {of.key}
        else:
            alone = (each for each in product.messages if track.message(each).code != _low_rank.KEPT)
            own = frozenset(each for each in alone if track.message(each).gradient == source)
        if not own or summed.shift != 0:
            _low_rank.fail_other(track)
        (message,) = own
        (part,) = track.message(message).gradient
        factor = track.version("orthonormal", summed)
        track.put(2 * number, [Part(0, left.stop - left.start, Content(ORTHONORMAL, factor, 0))])
        other = Product(part.content.key, own, product.origin, factor)
        track.put(2 * number + 1, [Part(0, right.stop - right.start, Content(RIGHT, other, 0))])


def moved(form: Form) -> float:
    """Reads M and writes Q; of P it reads for each column those before it, twice, and writes all."""
    total = 0.0
    for source, (left, right) in _low_rank.groups(form.reads, form.writes):
        total += source.bytes + right.bytes + left.bytes * (2 + 2 * _low_rank.rank_of(source, left, right))
    return total

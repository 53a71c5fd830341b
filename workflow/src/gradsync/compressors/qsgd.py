"""QSGD: magnitudes rounded at random to levels of their bucket's norm (Alistarh et al., NeurIPS 2017, Eq. 3).

Q(v) = |v|_2 sign(v) l / s, where l is one of the two of 0 .. s that are next to s |v| / |v|_2, so that E Q(v) = v: no
error feedback is needed, and by default there is none. A bucket of d elements adds a variance of at most
min(d / s^2, sqrt(d) / s) |v|_2^2 (Lemma 3.1). If that is |v|_2^2 or more, what error feedback keeps may grow from turn
to turn, and does at few levels: then the two are refused together.

Differs from the paper: levels are packed, ceil(log2(2 s + 1)) bits of each element (8 for s = 127), where the paper has
Elias codes of a variable length; a norm has the type of the gradients; one beyond its range becomes its largest number,
by which Q stays unbiased. Random numbers have 24 bits, and depend on seed, rank, turn and message alone.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from gradsync.compressors import Size, Vector, _packed, refuse_infinite

FEEDBACK = False
LEVELS, BUCKET = 127, 512
MOST_LEVELS = 127  # with signs, 8 bits


def bits(levels: float) -> int:
    """Bits of an element: one of 2 s + 1 symbols."""
    return int(2 * levels).bit_length()


def size(elements: int, *, levels: float = LEVELS, bucket: float = BUCKET) -> Size:
    """A symbol of each element, and a norm of each bucket."""
    return Size(_packed.length(elements, bits(levels)), -(-elements // int(bucket)))


def variance(*, levels: float = LEVELS, bucket: float = BUCKET) -> float:
    """The most that E |Q(v) - v|^2 is of |v|^2 (Lemma 3.1)."""
    return min(bucket / levels**2, bucket**0.5 / levels)


def within(bucket: float, elements: int) -> int:
    """The elements of a bucket, of which a message has no more than its own."""
    return min(int(bucket), max(elements, 1))


def draws(elements: int, *, seed: float, rank: int, turn: int, first: float) -> Vector:
    """Numbers in [0, 1): those of a rank, in a turn, for a message whose first element has that number."""
    key = tuple(map(int, (seed, rank, turn, first)))
    return np.random.default_rng(key).random(elements, np.float32)


def encode(
    values: Vector,
    codes: Vector,
    scales: Vector,
    *,
    levels: float = LEVELS,
    bucket: float = BUCKET,
    seed: float = 0,
    first: float = 0,
    turn: int,
    rank: int,
) -> None:
    """Symbols, s for zero and s + l sign(v) for others, and the norms."""
    s, part = int(levels), abs(values)
    scales[:] = norms(part, bucket, len(scales))
    part /= of_elements(np.where(scales > 0, scales, 1), bucket, len(values))
    part *= s
    level = np.floor(part)
    part -= level
    level += draws(len(values), seed=seed, rank=rank, turn=turn, first=first) < part
    _packed.pack((np.copysign(level, values) + s).astype(np.uint8), bits(s), codes)


def norms(magnitude: Vector, bucket: float, buckets: int) -> Vector:
    """The Euclidean norm of each bucket, at most the largest number of the type.  # (buckets,)"""
    padded = np.zeros((buckets, within(bucket, len(magnitude))))
    padded.ravel()[: len(magnitude)] = magnitude
    largest = padded.max(axis=1, initial=0.0)
    refuse_infinite("qsgd", float(largest.max(initial=0.0)))
    if magnitude.dtype == padded.dtype:  # so that no square is infinite, nor lost; those of shorter types can't be
        padded /= np.where(largest > 0, largest, 1)[:, None]
    else:
        largest = np.ones(buckets)
    np.square(padded, out=padded)
    with np.errstate(over="ignore"):
        norm = largest * np.sqrt(padded.sum(axis=1))
    return np.minimum(norm, greatest(magnitude.dtype))


def greatest(dtype: Any) -> float:
    """The largest number of a floating-point type."""
    return float(ml_dtypes.finfo(dtype).max)


def of_elements(scales: Vector, bucket: float, elements: int) -> Vector:
    """The norm of each element's bucket.  # (elements,)"""
    return np.repeat(scales, within(bucket, elements))[:elements]


def decode(codes: Vector, scales: Vector, values: Vector, *, levels: float = LEVELS, bucket: float = BUCKET) -> None:
    """Levels of the norms are added to `values`."""
    s = int(levels)
    level = _packed.unpack(codes, bits(s), len(values)).astype(values.dtype) - s
    values += of_elements(scales, bucket, len(values)) * (level / s)

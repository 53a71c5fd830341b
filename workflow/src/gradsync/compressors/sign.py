"""Signs times the mean magnitude, a bit of each element (Karimireddy et al., ICML 2019, EF-SignSGD: Algorithm 1).

C(v) = |v|_1 / d sign(v), so that |v - C(v)|^2 = |v|^2 - |v|_1^2 / d. With error feedback, which is the default, the
paper proves the rate of SGD for one worker; without it there are problems on which signs don't converge.

Differs from the paper: v is a gradient and what was kept of gradients, where the paper's is a step, gamma g + e, with
the learning rate inside: the optimizer multiplies by its rate afterwards. The two are the same at a constant rate
without momentum. v is a message, or what the collective makes slices of; each rank's signs are summed with its own
scale; sign(0) is 1, for which the equation holds as well.
"""

from __future__ import annotations

from gradsync.compressors import Size, Vector, _packed, refuse_infinite

FEEDBACK = True
BITS = 1


def size(elements: int) -> Size:
    """A bit of each element, and one scale."""
    return Size(_packed.length(elements, BITS), 1)


def encode(values: Vector, codes: Vector, scales: Vector) -> None:
    """Signs, 1 for negative elements, and the mean magnitude."""
    magnitude = abs(values)
    largest = float(magnitude.max(initial=0.0))
    refuse_infinite("sign", largest)
    # as a part of the largest, so that no sum is infinite
    scales[0] = largest * (magnitude / (largest or 1.0)).mean(dtype=float) if len(values) else 0.0
    _packed.pack(values < 0, BITS, codes)


def decode(codes: Vector, scales: Vector, values: Vector) -> None:
    """The mean magnitude with each sign is added to `values`."""
    negative = _packed.unpack(codes, BITS, len(values))
    values += scales.take(0) * (1 - 2 * negative.astype(values.dtype))

"""Numbers that are known within an interval only, and arithmetic of them.

What was repeated in one launch is kept repeat by repeat: the repeats of two contenders are pairs of neighbours (A B B
A), so that a slow moment of the machine fell on both. Arithmetic goes through the repeats, pair by pair, and the
interval is that of the results. Different launches have no pairs: each number may be anywhere in its interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from gradsync.statistics.intervals import median_interval


class Span(NamedTuple):
    """A number, and the interval that it is known to lie in: -inf to inf if no interval is known.

    `samples`: the repeats that it is the median of, one after the other in launch `launch`. `inputs`: for how many
    inputs, of all that a claim is made for, it was computed or timed.
    """

    value: float
    low: float
    high: float
    samples: tuple[float, ...] = ()
    launch: str = ""
    inputs: int = 1

    @classmethod
    def exactly(cls, value: float, inputs: int = 1) -> Span:
        """A number that is counted or computed."""
        return cls(value, value, value, inputs=inputs)

    @classmethod
    def unknown(cls, value: float, inputs: int = 1) -> Span:
        """A number that was measured too seldom for an interval."""
        return cls(value, -math.inf, math.inf, inputs=inputs)

    @classmethod
    def repeated(cls, samples: Sequence[float], launch: str, inputs: int = 1) -> Span:
        """The median of repeats; its interval is unknown if they are too few."""
        low, middle, high = median_interval(samples)
        if low is None or high is None:
            low, high = -math.inf, math.inf
        return cls(middle, low, high, tuple(samples), launch, inputs)

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def exact(self) -> bool:
        """Whether it can't be another number."""
        return self.low == self.high and not self.samples


class MayBeZero(Exception):  # noqa: N818  not an error: there is no value
    """The divisor may be 0."""


def of(function: Callable[..., float], spans: Sequence[Span], *, pairs: bool = True) -> Span:
    """`function` of numbers: pair by pair if all of them are of one launch, else anywhere in the intervals.

    It must be monotone in each argument, but for abs, and for division, which raises MayBeZero if the divisor may be 0.
    `pairs` is for functions whose median is the function of the medians: not for min and max.
    """
    inputs = max(span.inputs for span in spans)
    sampled = [span for span in spans if span.samples]
    divides = spans[1] if function is divided and len(spans) == 2 else None
    if divides and divides.samples and min(divides.samples) <= 0 <= max(divides.samples):
        raise MayBeZero
    if pairs and sampled and all(span.samples or span.exact for span in spans) and _alike(sampled):
        columns = (span.samples or (span.value,) * len(sampled[0].samples) for span in spans)
        return Span.repeated([function(*at) for at in zip(*columns, strict=True)], sampled[0].launch, inputs)
    value = function(*(span.value for span in spans))
    if not all(span.known for span in spans):
        return Span.unknown(value, inputs)
    if divides and divides.low <= 0 <= divides.high and not divides.exact:
        raise MayBeZero
    ends = [function(*corner) for corner in product(*((span.low, span.high) for span in spans))]
    if function is abs and spans[0].low < 0 < spans[0].high:
        ends.append(0.0)
    return Span(value, min(ends), max(ends), inputs=inputs)


def divided(x: float, y: float) -> float:
    """x / y, which has no value for y = 0."""
    return x / y


def compared(x: Span, y: Span) -> tuple[Span, Span]:
    """Two sides of a comparison whose outcome depends on x / |y|: if they are pairs, that ratio and the sign of y."""
    if x.samples and y.samples and _alike([x, y]):
        signs = {math.copysign(1.0, sample) if sample else 0.0 for sample in y.samples}
        if len(signs) == 1 and 0.0 not in signs:
            ratios = [a / abs(b) for a, b in zip(x.samples, y.samples, strict=True)]
            return Span.repeated(ratios, x.launch), Span.exactly(signs.pop())
    return x, y


def _alike(spans: Sequence[Span]) -> bool:
    """Whether the repeats of these spans are pairs."""
    return len({(span.launch, len(span.samples)) for span in spans}) == 1 and bool(spans[0].launch)

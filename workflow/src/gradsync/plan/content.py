"""What the elements of a buffer hold, values aside: whose gradients, which version of a parameter.

A *content* says what one element is (`kind`), which one of that kind (`key`), and which element of it: element i of a
buffer is element i + shift of the gradient, the parameters or the sparse message that it belongs to. So content that
arrives in another place than its own is noticed. Contents are equal exactly if the values are, whatever the numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

# Kinds. The key of a gradient is a `Sum`; that of what has versions (parameters, momentum, ..) is a version's number.
GRADIENT, PARAMETER, MOMENTUM, RESIDUAL, CENTRE, STATISTICS, SCALER, STATE = (
    *("gradient", "parameter", "momentum", "residual", "centre"),
    *("statistics", "scaler", "state"),
)
VALUES, INDICES, NORM, RATIO, MIXED = "values", "indices", "norm", "ratio", "sum of several"
CODES, SCALES = "codes", "scales"
LEFT, ORTHONORMAL, RIGHT = "left factor", "orthonormal factor", "right factor"  # of matrices of gradients
UNSENT = "matrix that is being sent"  # the number of its message, as that of a residual
SQUARES = "sum of squares"  # its key, as that of a norm: runs of elements
PARAMETERS, DIFFERENCE = "sum of parameters", "elastic difference"
NOTHING, CONSTANT = "nothing", "constant"


class Sum(NamedTuple):
    """A sum of gradients: a bit for each rank's gradient of each pass; all of them were multiplied by `weight`.

    `sparse`: the messages whose elements alone are in the sum; empty: all elements. `narrowed`: types that took some of
    its digits.
    """

    tokens: int
    weight: float = 1.0
    sparse: frozenset[int] = frozenset()
    narrowed: frozenset[str] = frozenset()

    def scaled(self, factor: float) -> Sum:
        """Every gradient multiplied by it; weights that differ by rounding alone are equal."""
        return self._replace(weight=float(f"{self.weight * factor:.12g}"))


class Product(NamedTuple):
    """Matrices of gradients, those of `summed` and of `messages`, which begin at `origin`, times one other factor."""

    summed: Sum
    messages: frozenset[int]
    origin: int
    factor: int


class Content(NamedTuple):
    """What an element holds; `shift` is None if all elements are alike."""

    kind: str
    key: Any = None
    shift: int | None = None

    def moved(self, by: int) -> Content:
        """The same content, with positions counted from `by` on."""
        return self if self.shift is None or not by else Content(self.kind, self.key, self.shift + by)


DERIVED = (PARAMETERS, DIFFERENCE)  # what is no sum or difference of its parts any more once it is scaled


class Terms(NamedTuple):
    """Of a sum of parameters: the versions in it, of parameters and of a centre, each as often as it is in the sum."""

    parameters: tuple[int, ...]
    centres: tuple[int, ...] = ()


def terms(content: Content) -> Terms:
    """What is in parameters, a centre, or a sum of them; nothing in anything else."""
    match content.kind:
        case "parameter":
            return Terms((content.key,))
        case "centre":
            return Terms((), (content.key,))
        case "sum of parameters":
            of_sum: Terms = content.key
            return of_sum
    return Terms(())


def sum_of_parameters(contents: Sequence[Content]) -> Content | None:
    """The sum of parameters, centres and sums of them, all of the same elements; None if it is none."""
    if {content.kind for content in contents} - {PARAMETER, CENTRE, PARAMETERS} or len({c.shift for c in contents}) > 1:
        return None
    each = [terms(content) for content in contents]
    summed = (tuple(sorted(key for one in each for key in one[side])) for side in (0, 1))
    return Content(PARAMETERS, Terms(*summed), contents[0].shift)


Elements = tuple[int, int, str, Any]
"""(first, one past the last, kind, which) of elements that follow one another."""


def joined(runs: Sequence[Elements]) -> tuple[Elements, ...] | None:
    """The runs in order, those in one that go on one another; None if an element is in two."""
    whole: list[Elements] = []
    for run in sorted(runs, key=lambda run: run[:2]):
        if whole and run[0] < whole[-1][1]:
            return None
        if whole and whole[-1][1:] == (run[0], *run[2:]):
            run = (whole.pop()[0], *run[1:])
        whole.append(run)
    return tuple(whole)


def sum_of_squares(contents: Sequence[Content]) -> Content | None:
    """The sum of sums of squares; None if it is none, or if an element is in it twice."""
    if {content.kind for content in contents} != {SQUARES}:
        return None
    runs = joined([run for content in contents for run in content.key])
    return None if runs is None else Content(SQUARES, runs)


def sum_of_products(contents: Sequence[Content]) -> Content | None:
    """The sum of products with one factor; None if it is none, or if a gradient is in it twice."""
    first = contents[0]
    if first.kind not in (LEFT, RIGHT) or len({(content.kind, content.shift) for content in contents}) > 1:
        return None
    total: Product = first.key
    for content in contents[1:]:
        other: Product = content.key
        tokens = total.summed.tokens | other.summed.tokens
        alike = total._replace(summed=total.summed._replace(tokens=tokens), messages=total.messages | other.messages)
        if other._replace(summed=other.summed._replace(tokens=tokens), messages=alike.messages) != alike:
            return None
        if total.summed.tokens & other.summed.tokens:
            return None
        total = alike
    return first._replace(key=total)


UNSET = Content(NOTHING)
ZERO = Content(CONSTANT, 0.0)


class Part(NamedTuple):
    """Elements [start, stop) of a range, counted from where it begins, all of one content."""

    start: int
    stop: int
    content: Content


Parts = list[Part]


class Cover:
    """The contents of a buffer of so many elements, part by part."""

    def __init__(self, elements: int, content: Content = UNSET):
        self.starts, self.contents, self.stop = [0], [content], elements

    def read(self, start: int, stop: int) -> Parts:
        """The parts of [start, stop), counted from `start`."""
        parts: Parts = []
        i = bisect_right(self.starts, start) - 1
        while start < stop and i < len(self.starts) and self.starts[i] < stop:
            end = self.starts[i + 1] if i + 1 < len(self.starts) else self.stop
            low, high = max(self.starts[i], start), min(end, stop)
            parts.append(Part(low - start, high - start, self.contents[i].moved(start)))
            i += 1
        return parts

    def write(self, start: int, parts: Sequence[Part]) -> None:
        """Put `parts`, which follow one another, counted from `start`."""
        if not parts:
            return
        low, high = start + parts[0].start, start + parts[-1].stop
        before = bisect_right(self.starts, low) - 1
        after = bisect_right(self.starts, high) - 1
        new: list[tuple[int, Content]] = []
        if self.starts[before] < low:
            new.append((self.starts[before], self.contents[before]))
        elif before > 0:  # it may go on what lies before it
            before -= 1
            new.append((self.starts[before], self.contents[before]))
        new += [(start + part.start, part.content.moved(-start)) for part in parts]
        if high < self.stop:
            new.append((high, self.contents[after]))
            last = after
        else:
            last = len(self.starts) - 1
        merged = [entry for i, entry in enumerate(new) if i == 0 or entry[1] != new[i - 1][1]]
        self.starts[before : last + 1] = [position for position, _ in merged]
        self.contents[before : last + 1] = [content for _, content in merged]


def cut(parts: Sequence[Part], start: int, stop: int) -> Parts:
    """The part of `parts` that lies in [start, stop), counted as before."""
    return [
        Part(max(part.start, start), min(part.stop, stop), part.content)
        for part in parts
        if part.start < stop and start < part.stop
    ]


def together(operands: Sequence[Sequence[Part]]) -> Iterator[tuple[int, int, tuple[Content, ...]]]:
    """(start, stop, the content of each operand) for operands of equal length, cut where any of them changes."""
    if len(operands) == 1:
        yield from ((part.start, part.stop, (part.content,)) for part in operands[0])
        return
    edges = sorted({edge for parts in operands for part in parts for edge in part[:2]})
    positions = [0] * len(operands)
    for low, high in pairwise(edges):
        for i, parts in enumerate(operands):
            while parts[positions[i]].stop <= low:
                positions[i] += 1
        yield low, high, tuple(parts[positions[i]].content for i, parts in enumerate(operands))

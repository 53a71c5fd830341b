"""Compressors: what is sent of a vector, in NumPy, as the oracle computes it.

A compressor is one file here, which *selects* elements, makes a *code* of all of them, or *factors* matrices. One that
selects has

    select(values, k, *, turn) -> positions

`values` is a vector of floating point numbers  # (elements,)
It stays as it is. The positions are int64, distinct and ascending  # (k,)
If k is not less than the number of elements, they are all of them. A magnitude is compared by its bits, so that NaN
counts as larger than infinity: it is sent, and every rank sees it, as after a dense sum. Randomness comes from
`generator` alone, by the turn (iterations that went before) and the number of elements: so all readers draw the same,
and ranks with vectors of one length do, too. `gradsync/runtime/selection/` has the fast reading of the same name for
torch, which chooses the same positions.

One that codes has

    size(elements, **options) -> Size                 what a code of so many elements takes
    encode(values, codes, scales, **options)          writes a code; arrays may be longer than it, the rest becomes 0
    decode(codes, scales, values, **options)          adds to `values` what a code stands for
    FEEDBACK                                          whether there is error feedback, if nobody says
    variance(**options)                               optional: the most that E |C(v) - v|^2 is of |v|^2; without
                                                      it less than 1, so that what error feedback keeps is bounded

`codes` are bytes, `scales` numbers of the type of the values. Options are keyword arguments with defaults. `encode` may
ask for `FILLED` as well, of which its randomness is made: the turn, the rank, the number of the message's first
element. It refuses NaN and infinity, which no code stands for (`refuse_infinite`). `gradsync/runtime/coding/` has the
reading of the same name for a GPU.

One that factors sends factors of each matrix, sums of which ranks all-reduce. It has

    matrix(shape, rank) -> Matrix | None    the factors of a tensor of this shape; None if it travels whole
    OPTIONS                                 its options and their defaults
    FEEDBACK                                as above

and kernels of its own (`gradsync/kernels/powersgd_left.py` and those after it).

Discovery finds the file; its name is the compressor's name. Each file says what part of the exact top k it selects
(recall). One that fails on some vectors says why in `FAILS`: it is planned, simulated and measured, but nothing is
trained with it, since the vector may come in the middle of a training.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from gradsync.errors import InputError, RunError
from gradsync.names import modules_in, near, refuse_unknown, shown

Vector = np.ndarray[Any, Any]
FILLED = ("turn", "rank", "first")  # keyword arguments of `encode` that nobody sets as an option
# What an option may be: from the least to the most
LIMITS = {"rank": (1, 1 << 16), "levels": (1, 127), "bucket": (8, 1 << 31), "seed": (0, 1 << 31)}


class Size(NamedTuple):
    """What a code takes: bytes, and scales of the type of the values. Arrays of elements give arrays."""

    codes: Any
    scales: Any


def names() -> list[str]:
    """Names of all compressors, sorted."""
    return modules_in(__path__)


def get(name: str) -> Any:
    """The module of a compressor; raises InputError that lists the known ones."""
    refuse_unknown("compressor", name, names())
    return importlib.import_module(f"{__name__}.{name}")


def selecting() -> list[str]:
    """Names of the compressors that select elements, sorted."""
    return [name for name in names() if not codes(name) and not factors(name)]


def coding() -> list[str]:
    """Names of the compressors that make codes, sorted."""
    return [name for name in names() if codes(name)]


def codes(name: str) -> bool:
    """Whether a compressor makes codes; raises InputError if it doesn't exist."""
    return hasattr(get(name), "encode")


def factoring() -> list[str]:
    """Names of the compressors that factor matrices, sorted."""
    return [name for name in names() if factors(name)]


def factors(name: str) -> bool:
    """Whether a compressor factors matrices; raises InputError if it doesn't exist."""
    return hasattr(get(name), "matrix")


def refuse_unselecting(name: str, where: str) -> None:
    """Raises InputError, which says `where`, for a compressor that selects nothing."""
    if codes(name) or factors(name):
        does = "makes codes" if codes(name) else "factors matrices"
        raise InputError(f"{where}: compressor {name!r} {does}: take one of {', '.join(selecting())}")


def size(name: str, elements: Any, options: Mapping[str, float]) -> Size:
    """What a code of so many elements takes."""
    module = get(name)
    taken: Size = module.size(elements, **asked(module.size, options))
    return taken


def variance(name: str, options: Mapping[str, float]) -> float:
    """The most that E |C(v) - v|^2 is of |v|^2 for a compressor that may add 1 or more; of others 0."""
    bound = getattr(get(name), "variance", None)
    return 0.0 if bound is None else float(bound(**asked(bound, options)))


def options(name: str) -> dict[str, int]:
    """The options of a compressor and their defaults; none of one that selects."""
    if factors(name):
        return dict(get(name).OPTIONS)
    if not codes(name):
        return {}
    keywords = inspect.signature(get(name).encode).parameters.values()
    return {each.name: each.default for each in keywords if each.default is not each.empty and each.name not in FILLED}


def asked(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function has keyword arguments for."""
    keywords = inspect.signature(function).parameters
    return {name: value for name, value in given.items() if name in keywords}


def refuse_options(name: str, chosen: Mapping[str, Any]) -> None:
    """Raises InputError for an option that the compressor does not have, or a value that is none of it."""
    known = options(name)
    for key, value in chosen.items():
        if key not in known:
            has = ", ".join(known) or "none"
            raise InputError(f"compressor {name!r} has no option {key!r}; {near(key, known)}it has: {has}")
        least, most = LIMITS[key]
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise InputError(
                f"compressor {name!r}: option {key}: a whole number, {least} to {most}, not {shown(value)}"
            )


def refuse_infinite(name: str, largest: float) -> None:
    """Raises RunError if the largest magnitude of a message is infinite or NaN."""
    if not isfinite(largest):
        raise RunError(
            f"compressor {name!r}: a gradient has elements that are {'NaN' if largest != largest else 'infinite'}, "
            "which no code stands for: the training diverges; take a lower learning rate, or clip"
        )


def refuse_training(used: Iterable[str], where: str) -> None:
    """Raises InputError, which says `where`, for a compressor that may fail in the middle of a training."""
    for name in filter(None, used):
        if why := getattr(get(name), "FAILS", ""):
            able = ", ".join(each for each in names() if not hasattr(get(each), "FAILS"))
            raise InputError(f"{where}: compressor {name!r} may end a training: {why}: take one of {able}")


def generator(turn: int, elements: int) -> np.random.Generator:
    """The randomness of a selection among so many elements in a turn of the loop."""
    return np.random.default_rng((turn, elements))


def all_or_none(elements: int, k: int) -> Vector:
    """What every compressor selects if k is 0 or not less than the number of elements; InputError if k is negative."""
    if k < 0:
        raise InputError(f"a selection of {k} elements: take k of 0 or more")
    return np.arange(elements if k else 0, dtype=np.int64)


def keys(values: Vector) -> Vector:
    """Integers in the order of the magnitudes: their bits without the sign, NaN above infinity.  # (elements,)"""
    bits = np.ascontiguousarray(values).view(f"i{values.dtype.itemsize}")
    return np.bitwise_and(bits, np.iinfo(bits.dtype).max)


def recall(values: Vector, positions: Vector) -> float:
    """Which part of what is selected belongs to the exact top k; of equal magnitudes all do. 1 if nothing is."""
    if not len(positions):
        return 1.0
    magnitude = keys(values)
    least = np.partition(magnitude, len(magnitude) - len(positions))[len(magnitude) - len(positions)]
    return float(np.mean(magnitude[positions] >= least))

"""Compressors: which k elements of a vector are sent, in NumPy, as the oracle computes it.

A compressor is one file here with a function

    select(values, k, *, turn) -> positions

`values` is a vector of floating point numbers  # (elements,)
It stays as it is. The positions are int64, distinct and ascending  # (k,)
If k is not less than the number of elements, they are all of them. A magnitude is compared by its bits, so that NaN
counts as larger than infinity: it is sent, and every rank sees it, as after a dense sum. Randomness comes from
`generator` alone, by the turn (iterations that went before) and the number of elements: so all readers draw the same,
and ranks with vectors of one length do, too.

`gradsync/runtime/selection/` has the fast reading of the same name for torch, which chooses the same positions.
Discovery finds the file; its name is the compressor's name. Each file says what part of the exact top k it selects
(recall). One that fails on some vectors says why in `FAILS`: it is planned, simulated and measured, but nothing is
trained with it, since the vector may come in the middle of a training.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from gradsync.errors import InputError
from gradsync.names import modules_in, refuse_unknown

Vector = np.ndarray[Any, Any]


def names() -> list[str]:
    """Names of all compressors, sorted."""
    return modules_in(__path__)


def get(name: str) -> Any:
    """The module of a compressor; raises InputError that lists the known ones."""
    refuse_unknown("compressor", name, names())
    return importlib.import_module(f"{__name__}.{name}")


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

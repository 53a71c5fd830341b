"""Vectors that codes are tried on: any finite numbers, zeros, ties, tiny and huge ones."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from gradsync import compressors

Code = tuple[np.ndarray, np.ndarray]


def finite(dtype: type, largest: int = 40) -> st.SearchStrategy[np.ndarray]:
    """Short vectors; of the largest numbers half, so that a gradient and a residual can be added."""
    most = float(np.finfo(dtype).max) / 2
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, float(np.finfo(dtype).tiny), most, -most])
    wide = st.floats(-most, most, width=8 * np.dtype(dtype).itemsize)
    tiny = st.floats(-(2.0**-130), 2.0**-130, width=8 * np.dtype(dtype).itemsize)
    return st.one_of(npst.arrays(dtype, st.integers(1, largest), elements=each) for each in (few, wide, tiny))


def room(name: str, values: np.ndarray, **options: float) -> Code:
    """Memory for a code, with something in it."""
    size = compressors.size(name, len(values), options)
    return np.full(size.codes, 255, np.uint8), np.full(size.scales, np.nan, values.dtype)


def encoded(name: str, values: np.ndarray, *, turn: int = 0, rank: int = 0, **options: float) -> Code:
    """The code of a vector."""
    module, code = compressors.get(name), room(name, values, **options)
    module.encode(values, *code, **compressors.asked(module.encode, {"turn": turn, "rank": rank, **options}))
    return code


def decoded(name: str, code: Code, like: np.ndarray, **options: float) -> np.ndarray:
    """What a code stands for."""
    module, values = compressors.get(name), np.zeros_like(like)
    module.decode(*code, values, **compressors.asked(module.decode, options))
    return values

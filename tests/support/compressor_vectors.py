"""Vectors on which selections are tried: what Fig. 6 draws, and what breaks a search for a threshold."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

DTYPES = (np.float32, np.float64)


def drawn(dtype: type = np.float32, largest: int = 60) -> st.SearchStrategy[np.ndarray]:
    """Short vectors with many ties, zeros of both signs, and numbers of any size."""
    width = 8 * np.dtype(dtype).itemsize
    few = st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, -2.0])
    wide = st.floats(allow_nan=True, allow_infinity=True, width=width)
    return st.one_of(npst.arrays(dtype, st.integers(0, largest), elements=each) for each in (few, wide))


def named(elements: int, dtype: type = np.float32) -> dict[str, np.ndarray]:
    """Long vectors by name."""
    random = np.random.default_rng(1)
    gaussian = random.standard_normal(elements)
    ties = gaussian.clip(-1.5, 1.5)
    nan = np.where(np.arange(elements) % 1000 == 3, np.nan, gaussian)
    infinite = np.where(np.arange(elements) % 1000 == 3, -np.inf, gaussian)
    layers = gaussian * np.repeat([1e-6, 1.0, 1e-3, 1e3], -(-elements // 4))[:elements]
    vectors = {"gaussian": gaussian, "laplace": random.laplace(size=elements), "layers": layers, "ties": ties}
    vectors |= {"zero": np.zeros(elements), "constant": np.full(elements, 0.1), "nan": nan, "infinite": infinite}
    return {name: vector.astype(dtype) for name, vector in vectors.items()}

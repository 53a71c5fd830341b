"""PowerSGD's matrices, their factors, and orthonormal columns of whatever there may be."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradsync import compressors
from gradsync.compressors import powersgd
from gradsync.errors import InputError
from gradsync.runtime import low_rank

BOTH = {
    "numpy": powersgd.orthonormal,
    "torch": lambda left: low_rank.orthonormal(torch.from_numpy(left)).numpy(),
}


@given(st.lists(st.integers(1, 40), max_size=4), st.integers(1, 9))
def test_lengths_tell_the_shape(shape: list[int], rank: int) -> None:
    found = powersgd.matrix(shape, rank)
    if found is None:
        rows = shape[0] if shape else 1
        columns = prod(shape[1:])
        assert len(shape) < 2 or min(rank, rows, columns) * (rows + columns) >= rows * columns
        return
    assert (found.rows, found.columns, found.rank) == (shape[0], prod(shape[1:]), min(rank, shape[0], prod(shape[1:])))
    assert found.left + found.right < prod(shape)
    assert powersgd.of_lengths(prod(shape), found.left, found.right) == found


def test_other_lengths_are_no_matrix() -> None:
    assert powersgd.of_lengths(20, 8, 10) == (4, 5, 2)
    for lengths in ((20, 8, 11), (20, 8, 9), (20, 0, 10), (0, 8, 10), (20, 40, 50), (21, 8, 10)):
        assert powersgd.of_lengths(*lengths) is None, lengths


def of_columns(*columns: list[float], dtype: str = "float64") -> np.ndarray:
    return np.array(columns, dtype).T.copy()


HUGE, TINY = 1e300, 1e-300
ODD = {
    "zeros": np.zeros((5, 3)),
    "one column of zeros": of_columns([1, 2, 3, 4], [0, 0, 0, 0], [0, 1, 0, 1]),
    "equal columns": of_columns([1, 2, 3, 4], [1, 2, 3, 4], [2, 4, 6, 8]),
    "square and singular": of_columns([1, 2, 3], [2, 4, 6], [1, 0, 0]),
    "huge": HUGE * of_columns([1, 2, 3, 4], [1, -1, 1, -1]),
    "tiny": TINY * of_columns([1, 2, 3, 4], [1, -1, 1, -1]),
    "huge beside tiny": of_columns([HUGE, HUGE, 0, 0], [TINY, 0, TINY, 0]),
    "unit vectors that are taken": of_columns([1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]),
    "float32": of_columns([1, 2, 3, 4], [1, 2, 3, 4.000001], dtype="float32"),
    "a row": np.array([[-3.0]]),
}


@pytest.mark.parametrize("reading", BOTH)
@pytest.mark.parametrize("name", ODD)
def test_columns_are_orthonormal_whatever_they_were(name: str, reading: str) -> None:
    before = ODD[name].copy()
    columns = BOTH[reading](ODD[name])
    np.testing.assert_array_equal(ODD[name], before)
    np.testing.assert_allclose(columns.T @ columns, np.eye(before.shape[1]), atol=1e-14)
    scaled = before / (np.abs(before).max(axis=0) + (np.abs(before).max(axis=0) == 0))
    enough = 1e-5 if before.dtype == np.float32 else 1e-12
    np.testing.assert_allclose(columns @ (columns.T @ scaled), scaled, atol=enough)  # what was spanned still is
    np.testing.assert_allclose(columns, BOTH["numpy"](before), atol=1e-12)


@pytest.mark.parametrize("reading", BOTH)
def test_independent_columns_are_those_of_a_qr(reading: str) -> None:
    left = np.random.default_rng(1).normal(size=(30, 6))
    basis, upper = np.linalg.qr(left)
    np.testing.assert_allclose(BOTH[reading](left), basis * np.sign(np.diag(upper)), atol=1e-13)


def test_the_first_factor_depends_on_seed_and_place_alone() -> None:
    first = powersgd.drawn(1000, seed=1, place=7)
    np.testing.assert_array_equal(first, powersgd.drawn(1000, seed=1, place=7))
    for other in (powersgd.drawn(1000, seed=2, place=7), powersgd.drawn(1000, seed=1, place=8)):
        assert np.abs(np.corrcoef(first, other)[0, 1]) < 0.2
    assert abs(first.mean()) < 0.2
    assert abs(first.std() - 1) < 0.1


def test_it_selects_nothing_and_makes_no_codes() -> None:
    assert compressors.factoring() == ["powersgd"]
    assert not {"powersgd"} & {*compressors.selecting(), *compressors.coding()}
    with pytest.raises(InputError, match="--compressor: compressor 'powersgd' factors matrices: take one of "):
        compressors.refuse_unselecting("powersgd", "--compressor")

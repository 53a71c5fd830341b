"""Codes that a GPU makes are those of the NumPy reading: here torch's readings run on the processor."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from code_vectors import decoded, encoded, finite, room
from compressor_vectors import DTYPES
from gradsync import compressors
from gradsync.errors import RunError
from gradsync.names import modules_in
from gradsync.runtime import coding

HOW = {"sign": [{}], "qsgd": [{"levels": levels, "bucket": 8} for levels in (1, 5, 127)]}


def by_torch(name: str, values: np.ndarray, **options: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(codes, scales, what they stand for)."""
    module = importlib.import_module(f"{coding.__name__}.{name}")
    code = [torch.from_numpy(each) for each in room(name, values, **options)]
    how = {"turn": 5, "rank": 2, **options}
    module.encode(torch.from_numpy(values), *code, **compressors.asked(module.encode, how))
    back = torch.zeros(len(values), dtype=code[1].dtype)
    module.decode(*code, back, **compressors.asked(module.decode, how))
    return (*(each.numpy() for each in code), back.numpy())


def test_every_code_has_a_reading_for_a_gpu() -> None:
    assert modules_in(coding.__path__) == compressors.coding()
    assert HOW.keys() == {*compressors.coding()}


@pytest.mark.parametrize("name", compressors.coding())
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data())
def test_both_readings_write_the_same_code(name: str, dtype: type, data: st.DataObject) -> None:
    values = data.draw(finite(dtype))
    for options in HOW[name]:
        expected = encoded(name, values, turn=5, rank=2, **options)
        codes, scales, back = by_torch(name, values, **options)
        enough = 4 * np.finfo(dtype).eps
        np.testing.assert_allclose(scales, expected[1], rtol=enough)
        if (scales == expected[1]).all():  # a norm of another last bit may round another way
            assert codes.tolist() == expected[0].tolist()
            np.testing.assert_allclose(back, decoded(name, expected, values, **options), rtol=enough)


@pytest.mark.parametrize("name", compressors.coding())
@pytest.mark.parametrize("elements", [1, 511, 20_000])
def test_both_readings_of_gaussian_numbers(name: str, elements: int) -> None:
    values = np.random.default_rng(elements).standard_normal(elements)
    for options in HOW[name]:
        expected = encoded(name, values, turn=5, rank=2, **options)
        codes, scales, _ = by_torch(name, values, **options)
        np.testing.assert_allclose(scales, expected[1], rtol=1e-14)
        assert (codes == expected[0]).mean() > 0.999


class Largest(TorchDispatchMode):
    """The elements of the largest tensor that was made."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.elements = max(self.elements, made.numel() if isinstance(made, torch.Tensor) else 0)
        return made


def test_memory_goes_by_the_elements_of_a_message_that_is_shorter_than_a_bucket() -> None:
    values = np.arange(100.0)
    with Largest() as largest:
        code = by_torch("qsgd", values, levels=127, bucket=1 << 22)
    assert largest.elements < 1000
    for made, expected in zip(code, by_torch("qsgd", values, levels=127, bucket=100), strict=True):
        assert (made == expected).all()


@pytest.mark.parametrize("name", compressors.coding())
def test_types_that_numpy_lacks_are_encoded_too(name: str) -> None:
    values = torch.randn(600, generator=torch.Generator().manual_seed(1)).bfloat16()
    size = compressors.size(name, len(values), {})
    writes = [torch.zeros(size.codes, dtype=torch.uint8), torch.zeros(size.scales, dtype=torch.bfloat16)]
    kernels, back = coding.kernels(), torch.ones(600, dtype=torch.bfloat16)
    how = {"turn": 0, "rank": 0}
    kernels[f"encode_{name}"]([values], writes, **(how if name == "qsgd" else {}))
    kernels[f"decode_{name}"](writes, [back], longest=600.0)
    assert float((back * values).sum()) > 0.5 * float((back * back).sum()) > 0


@pytest.mark.parametrize("name", compressors.coding())
def test_a_gpu_refuses_what_is_not_finite(name: str) -> None:
    with pytest.raises(RunError, match=f"compressor '{name}': a gradient has elements that are NaN"):
        by_torch(name, np.array([1.0, np.nan]))

"""The fast selections choose the positions of their NumPy readings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from compressor_vectors import DTYPES, drawn, named
from gradsync import compressors
from gradsync.errors import InputError, RunError
from gradsync.names import modules_in
from gradsync.runtime import selection
from gradsync.runtime.selection import mstopk

LONG = mstopk.SHORT + 37  # samples, blocks, and a rest


def outcome(select: selection.Select, values: object, k: int, turn: int) -> list[int] | str:
    try:
        positions = select(values, k, turn=turn)
    except RunError as error:
        return str(error)
    assert positions.dtype in (np.int64, torch.int64)
    return [int(position) for position in positions]


def test_every_compressor_has_a_fast_reading() -> None:
    assert modules_in(selection.__path__) == compressors.selecting()


@pytest.mark.parametrize("name", compressors.selecting())
@given(data=st.data(), turn=st.integers(0, 1000), dtype=st.sampled_from(DTYPES))
def test_short_vectors(name: str, data: st.DataObject, turn: int, dtype: type) -> None:
    values = data.draw(drawn(dtype))
    k = data.draw(st.integers(0, len(values) + 1))
    fast = outcome(selection.get(name), torch.from_numpy(values.copy()), k, turn)
    with np.errstate(all="ignore"):
        assert fast == outcome(compressors.get(name).select, values, k, turn)


@pytest.mark.parametrize("name", compressors.selecting())
@pytest.mark.parametrize("vector", named(1))
def test_long_vectors(name: str, vector: str) -> None:
    values = named(LONG, np.float64 if vector == "layers" else np.float32)[vector]
    for k in (1, LONG // 1000, LONG // 3):
        fast = outcome(selection.get(name), torch.from_numpy(values), k, 7)
        with np.errstate(all="ignore"):
            assert fast == outcome(compressors.get(name).select, values, k, 7)


@pytest.mark.parametrize("elements", [mstopk.SHORT - 1, mstopk.SHORT, 100_003, mstopk.STRATUM * mstopk.SAMPLED + 5])
def test_mstopk_at_the_lengths_where_its_sample_changes(elements: int) -> None:
    values = named(elements)["gaussian"]
    for k in (1, elements // 1000, elements // 100):
        expected = compressors.get("mstopk").select(values, k, turn=3)
        assert mstopk.select(torch.from_numpy(values), k, turn=3).tolist() == expected.tolist()


def test_mstopk_uses_its_sample_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.from_numpy(named(LONG)["layers"])
    expected = mstopk.select(values, 300, turn=1)
    found = mstopk.candidates(values, 300, 1)
    assert 300 <= len(found) < 3000
    monkeypatch.delattr(mstopk, "threshold")  # the search
    assert torch.equal(mstopk.select(values, 300, turn=1), expected)


@given(data=st.data(), k=st.integers(1, 59))
def test_the_search_bit_by_bit_finds_the_threshold(data: st.DataObject, k: int) -> None:
    values = torch.from_numpy(data.draw(drawn().filter(lambda values: len(values) > k)))
    magnitude = selection.keys(values)
    assert int(mstopk.threshold(magnitude, k)) == int(magnitude.sort(descending=True).values[k - 1])


def test_mstopk_without_a_sample_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for vector, values in named(LONG).items():
        tensor = torch.from_numpy(values)
        expected = mstopk.select(tensor, 300, turn=1)
        with monkeypatch.context() as patch:
            patch.setattr(mstopk, "candidates", lambda *_: torch.arange(0))
            assert torch.equal(mstopk.select(tensor, 300, turn=1), expected), vector


def test_mstopk_whose_sample_misleads_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.from_numpy(named(LONG)["gaussian"])
    expected = mstopk.select(values, 300, turn=1)
    monkeypatch.setattr(mstopk, "DEVIATIONS", -3)  # too few pass
    assert len(mstopk.candidates(values, 300, 1)) < 300
    assert torch.equal(mstopk.select(values, 300, turn=1), expected)


@pytest.mark.parametrize("name", ["exact_topk", "mstopk", "dgc_topk", "random_k"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(dtype)
    positions = selection.get(name)(values, 100, turn=0)
    assert positions.tolist() == compressors.get(name).select(values.float().numpy(), 100, turn=0).tolist()


def test_a_compressor_without_a_fast_reading_is_computed_by_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    last = SimpleNamespace(select=lambda values, k, *, turn: np.arange(len(values) - k, len(values)))
    monkeypatch.setattr(compressors, "get", lambda name: last)
    assert selection.get("last_k")(torch.zeros(5), 2, turn=0).tolist() == [3, 4]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match="compressor 'topk' does not exist"):
        selection.get("topk")

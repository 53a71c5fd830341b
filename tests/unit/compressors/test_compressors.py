"""What every compressor selects: k distinct positions, ascending, the same each time; how good they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compressor_vectors import DTYPES, drawn, named
from gradsync import compressors
from gradsync.compressors import mstopk, mstopk_as_printed
from gradsync.errors import InputError, RunError

EXACT = ("dgc_topk", "exact_topk", "mstopk")
ALWAYS = sorted({*compressors.selecting()} - {"mstopk_as_printed"})


def by_sorting(values: np.ndarray, k: int) -> np.ndarray:
    """The magnitudes of the exact top k, largest first, NaN above all."""
    return np.sort(np.where(np.isnan(values), np.inf, np.abs(values)))[::-1][:k]


def refuse_other(values: np.ndarray, k: int, positions: np.ndarray) -> None:
    assert positions.dtype == np.int64
    assert positions.shape == (min(k, len(values)),)
    assert (np.diff(positions) > 0).all()  # ascending, so distinct
    assert not len(positions) or (positions[0] >= 0 and positions[-1] < len(values))


@pytest.mark.parametrize("name", ALWAYS)
@given(data=st.data(), turn=st.integers(0, 2**40), dtype=st.sampled_from(DTYPES))
def test_selects_k_distinct_positions_and_leaves_the_values(
    name: str, data: st.DataObject, turn: int, dtype: type
) -> None:
    values = data.draw(drawn(dtype))
    k = data.draw(st.integers(0, len(values) + 1))
    before = values.tobytes()
    positions = compressors.get(name).select(values, k, turn=turn)
    refuse_other(values, k, positions)
    assert np.array_equal(positions, compressors.get(name).select(values, k, turn=turn))
    assert values.tobytes() == before


@pytest.mark.parametrize("name", EXACT)
@given(data=st.data(), turn=st.integers(0, 1000), dtype=st.sampled_from(DTYPES))
def test_exact_ones_select_the_largest_magnitudes(name: str, data: st.DataObject, turn: int, dtype: type) -> None:
    values = data.draw(drawn(dtype))
    k = data.draw(st.integers(0, len(values)))
    positions = compressors.get(name).select(values, k, turn=turn)
    assert np.array_equal(by_sorting(values[positions], k), by_sorting(values, k))
    assert compressors.recall(values, positions) == 1


@pytest.mark.parametrize("name", ["dgc_topk", "exact_topk"])
def test_of_equal_magnitudes_the_first_are_taken(name: str) -> None:
    values = np.array([1, -2, 2, 1, 0, -2], np.float32)
    assert compressors.get(name).select(values, 2, turn=0).tolist() == [1, 2]


def test_mstopk_takes_a_run_of_equal_magnitudes_that_moves_with_the_turn() -> None:
    values = np.ones(1000)
    runs = [mstopk.select(values, 10, turn=turn) for turn in range(50)]
    assert all((np.diff(run) == 1).all() for run in runs)
    starts = {int(run[0]) for run in runs}
    assert len(starts) > 40
    assert min(starts) < 200
    assert max(starts) > 790


@pytest.mark.parametrize("name", compressors.selecting())
@pytest.mark.parametrize("density", [0.001, 0.1, 0.999])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_density_of_a_gaussian(name: str, density: float, dtype: type) -> None:
    values = named(20_000, dtype)["gaussian"]
    k = round(density * len(values))
    positions = compressors.get(name).select(values, k, turn=3)
    refuse_other(values, k, positions)
    found = compressors.recall(values, positions)
    assert found == pytest.approx(density, abs=0.05) if name == "random_k" else found > 0.99


def test_recall_counts_what_belongs_to_the_top() -> None:
    values = np.array([5.0, -4, 3, 3, 1])
    assert compressors.recall(values, np.array([0, 3, 4])) == pytest.approx(2 / 3)
    assert compressors.recall(values, np.array([0, 1, 3])) == 1  # either of the equal ones
    assert compressors.recall(values, np.array([], int)) == 1


def test_nan_is_selected_before_infinity() -> None:
    values = np.array([1.0, np.inf, -np.nan, -3], np.float32)
    for name in EXACT:
        assert compressors.get(name).select(values, 1, turn=0).tolist() == [2]
        assert compressors.get(name).select(values, 2, turn=0).tolist() == [1, 2]


@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_corrected_search_has_the_exact_threshold_between_its_own(data: st.DataObject, dtype: type) -> None:
    values = data.draw(drawn(dtype).filter(lambda values: len(values) > 1 and not np.isnan(values).any()))
    k = data.draw(st.integers(1, len(values) - 1))
    found = mstopk.search(values, k)
    magnitude = np.abs(values)
    assert found.second == np.sort(magnitude)[::-1][k - 1]
    assert found.above_second == np.count_nonzero(magnitude >= dtype(found.second))
    if np.isfinite(found.second):
        assert found.above_first == np.count_nonzero(magnitude >= dtype(found.first))
    assert found.above_first < k <= found.above_second


@pytest.mark.parametrize("vector", ["zero", "constant", "ties", "nan", "infinite"])
def test_the_letter_of_algorithm_1_fails(vector: str) -> None:
    with pytest.raises(RunError, match="take mstopk"):
        mstopk_as_printed.select(named(20_000)[vector], 20, turn=0)


def test_nothing_is_trained_with_a_compressor_that_may_fail() -> None:
    compressors.refuse_training(["", *ALWAYS], "here")
    with pytest.raises(
        InputError, match=r"^here: compressor 'mstopk_as_printed' may end a training: .* take one of dgc"
    ):
        compressors.refuse_training(["mstopk_as_printed"], "here")


def test_the_letter_has_no_empty_selection() -> None:
    with pytest.raises(RunError, match="finds no 0 of these 9 elements"):
        mstopk_as_printed.select(np.arange(9.0), 0, turn=0)


@pytest.mark.parametrize(("density", "least", "most"), [(0.4, 1, 1), (0.45, 0.9, 0.97), (0.6, 0.75, 0.85)])
def test_the_letter_misses_what_is_below_the_mean(density: float, least: float, most: float) -> None:
    values = named(200_000)["gaussian"]
    k = round(density * len(values))
    positions = mstopk_as_printed.select(values, k, turn=5)
    assert least <= round(compressors.recall(values, positions), 3) <= most
    assert compressors.recall(values, mstopk.select(values, k, turn=5)) == 1


def test_the_letter_brackets_k() -> None:
    for vector in ("gaussian", "laplace"):
        values = named(65_536)[vector]
        for k in (66, 655, 6554):
            found = mstopk_as_printed.search(values, k)
            assert found.above_first <= k <= found.above_second
            assert found.above_first == np.count_nonzero(abs(values) >= np.float32(found.first))
            assert found.above_second == np.count_nonzero(abs(values) >= np.float32(found.second))


def test_random_k_takes_every_position_alike() -> None:
    select = compressors.get("random_k").select
    counts = np.bincount(np.concatenate([select(np.zeros(50), 10, turn=turn) for turn in range(2000)]), minlength=50)
    assert abs(counts - 400).max() < 6 * np.sqrt(400 * 0.8)


@pytest.mark.parametrize("name", compressors.selecting())
def test_a_negative_count_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="selection of -1 elements"):
        compressors.get(name).select(np.ones(3), -1, turn=0)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InputError, match=r"compressor 'topk' does not exist; did you mean .*there are: dgc_topk, "):
        compressors.get("topk")

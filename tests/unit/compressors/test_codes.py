"""Codes: what they take, what they stand for, and that nothing is lost or leaned to one side."""

from __future__ import annotations

import tracemalloc
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from code_vectors import decoded, encoded, finite, room
from compressor_vectors import DTYPES
from gradsync import compressors
from gradsync.compressors import _packed, qsgd
from gradsync.errors import InputError, RunError
from gradsync.kernels import KERNELS

CODES = compressors.coding()
LEVELS = (1, 2, 3, 5, 7, 20, 50, 127)  # 2 to 8 bits


@given(data=st.data(), bits=st.integers(1, 8))
def test_symbols_come_back_from_as_few_bytes_as_can_be(data: st.DataObject, bits: int) -> None:
    symbols = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=40)), np.uint8)
    packed = np.full(ceil(len(symbols) * bits / 8) + 2, 255, np.uint8)
    _packed.pack(symbols, bits, packed)
    assert (_packed.unpack(packed, bits, len(symbols)) == symbols).all()
    whole = sum(int(symbol) << (bits * place) for place, symbol in enumerate(symbols))
    assert int.from_bytes(packed.tobytes(), "little") == whole  # one behind the other, and nothing after them


@pytest.mark.parametrize("elements", [1, 7, 8, 9, 512, 513, 100_003])
def test_sizes_are_exact(elements: int) -> None:
    assert compressors.size("sign", elements, {}) == (ceil(elements / 8), 1)
    for levels in LEVELS:
        bits = ceil(log2(2 * levels + 1))
        assert qsgd.bits(levels) == bits
        size = compressors.size("qsgd", elements, {"levels": levels, "bucket": 64, "seed": 3})
        assert size == (ceil(elements * bits / 8), ceil(elements / 64))


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), turn=st.integers(0, 1000))
def test_what_is_sent_and_what_is_left_are_the_gradient(name: str, dtype: type, data: st.DataObject, turn: int) -> None:
    gradient = data.draw(finite(dtype))
    residual = gradient[::-1].copy() / 4
    whole, left, code = gradient + residual, residual.copy(), room(name, gradient)
    kernel = KERNELS[f"encode_{name}"]
    kernel.compute([gradient], [*code, left], **kernel.at({}, turn))
    sent = decoded(name, code, gradient)
    assert np.isfinite(sent).all()
    enough = 4 * np.finfo(dtype).eps * max(abs(whole).max(), abs(sent).max()) + np.finfo(dtype).smallest_subnormal
    # in long numbers, so that the check itself can't overflow
    np.testing.assert_array_less(abs(sent.astype(np.longdouble) + left - whole), np.longdouble(enough) * 1.001)


@given(values=finite(np.float64))
def test_signs_leave_what_the_paper_says(values: np.ndarray) -> None:
    """|v - C(v)|^2 = |v|^2 - |v|_1^2 / d, for parts of the largest."""
    values = values / (abs(values).max() or 1.0)
    left = values - decoded("sign", encoded("sign", values), values)
    expected = (values**2).sum() - abs(values).sum() ** 2 / len(values)
    assert (left**2).sum() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@given(data=st.data(), turn=st.integers(0, 1000), levels=st.sampled_from(LEVELS))
def test_qsgd_rounds_to_a_level_beside_each_element(dtype: type, data: st.DataObject, turn: int, levels: int) -> None:
    values, how = data.draw(finite(dtype)), {"levels": levels, "bucket": 8}
    code = encoded("qsgd", values, turn=turn, **how)
    sent = decoded("qsgd", code, values, **how)
    scale = np.repeat(code[1], 8)[: len(values)].astype(np.longdouble)
    assert (scale >= abs(values)).all()
    slack = 1e-5 if dtype is np.float32 else 1e-12
    away = abs(sent.astype(np.longdouble) - values)
    assert (away <= scale * (1 / levels + slack) + np.finfo(dtype).smallest_subnormal * levels).all()
    assert (sent * np.sign(values) >= 0).all()


@pytest.mark.parametrize("levels", [1, 7, 127])
def test_qsgd_is_unbiased_and_varies_no_more_than_its_bound(levels: int) -> None:
    """The mean of 2000 draws is within 5 standard deviations, for each of 24 elements; Lemma 3.1."""
    random, draws, how = np.random.default_rng(5), 2000, {"levels": levels, "bucket": 16}
    values = random.standard_normal(24) * np.repeat([1.0, 0.1, 0.0], 8)
    codes = [encoded("qsgd", values, turn=turn, **how) for turn in range(draws)]
    sent = np.array([decoded("qsgd", code, values, **how) for code in codes])
    norms = np.repeat([np.linalg.norm(values[:16]), 1.0], [16, 8])
    part = abs(values) / norms * levels % 1
    deviation = norms / levels * np.sqrt(part * (1 - part) / draws)
    assert (abs(sent.mean(axis=0) - values) <= 5 * deviation + 1e-7).all()
    assert deviation[:8].all()
    for bucket in (slice(0, 16), slice(16, 24)):
        bound = min(16 / levels**2, 4 / levels) * (values[bucket] ** 2).sum()
        assert ((sent[:, bucket] - values[bucket]) ** 2).sum(axis=1).mean() <= bound * 1.05


def residuals(levels: int, bucket: int, turns: int) -> np.ndarray:
    """The norm of what error feedback keeps, as a multiple of the gradient's, turn by turn; one bucket.  # (turns,)"""
    gradient = np.random.default_rng(3).standard_normal(bucket)
    left, how, norms = np.zeros(bucket), {"levels": levels, "bucket": bucket}, []
    for turn in range(turns):
        whole = left + gradient
        left = whole - decoded("qsgd", encoded("qsgd", whole, turn=turn, **how), whole, **how)
        norms.append(np.linalg.norm(left) / np.linalg.norm(gradient))
    return np.array(norms)


@pytest.mark.parametrize(("levels", "bucket"), [(127, 512), (23, 512), (4, 8), (20, 64)])
def test_what_error_feedback_keeps_of_qsgd_is_bounded_by_its_variance(levels: int, bucket: int) -> None:
    """|r| <= w |r + g| in the mean square, so that |r| stays below w / (1 - w) |g|, w = sqrt(variance) < 1."""
    part = np.sqrt(compressors.variance("qsgd", {"levels": levels, "bucket": bucket}))
    assert part < 1
    assert residuals(levels, bucket, 200).mean() <= part / (1 - part)


@pytest.mark.parametrize(("levels", "bucket"), [(1, 512), (4, 512)])
def test_what_error_feedback_keeps_of_qsgd_grows_without_bound_at_few_levels(levels: int, bucket: int) -> None:
    assert compressors.variance("qsgd", {"levels": levels, "bucket": bucket}) >= 1
    assert residuals(levels, bucket, 80)[-1] > 1e4  # a sum of 80 would be 80


def test_a_selection_and_signs_leave_less_than_the_gradient() -> None:
    assert {compressors.variance(name, {}) for name in compressors.names() if name != "qsgd"} == {0.0}
    assert compressors.variance("qsgd", {}) == 512 / 127**2
    assert compressors.variance("qsgd", {"levels": 2}) == np.sqrt(512) / 2


def test_qsgd_takes_memory_by_the_elements_of_a_message_that_is_shorter_than_its_bucket() -> None:
    values, how = np.arange(100.0), {"levels": 127, "bucket": 1 << 22}
    tracemalloc.start()
    try:
        code = encoded("qsgd", values, **how)
        sent = decoded("qsgd", code, values, **how)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 1 << 20
    short = {"levels": 127, "bucket": 100}
    assert (sent == decoded("qsgd", encoded("qsgd", values, **short), values, **short)).all()
    assert [len(each) for each in encoded("qsgd", values[:0], **how)] == [0, 0]


def test_qsgd_draws_by_seed_rank_turn_and_message() -> None:
    values = np.random.default_rng(0).standard_normal(400)
    keys = [{}, {"seed": 1}, {"rank": 1}, {"turn": 1}, {"first": 1}]
    codes = [encoded("qsgd", values, levels=1, **key)[0].tobytes() for key in keys]
    assert len({*codes}) == len(keys)
    assert codes[0] == encoded("qsgd", values, levels=1)[0].tobytes()


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("value", [0.0, -3.0])
def test_zero_and_constant_vectors_come_back(name: str, value: float) -> None:
    values = np.full(40, value, np.float32)
    sent = decoded(name, encoded(name, values), values)
    np.testing.assert_allclose(sent, values, rtol=np.sqrt(40) / 127 if name == "qsgd" else 1e-6)


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "infinite"), (-np.inf, "infinite")])
def test_what_is_not_finite_is_refused_by_name(name: str, value: float, word: str) -> None:
    values = np.ones(20, np.float32)
    values[13] = value
    with pytest.raises(RunError, match=f"compressor '{name}': a gradient has elements that are {word}"):
        encoded(name, values)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"level": 3}, "has no option 'level'; did you mean levels"),
        ({"levels": 0}, "option levels: a whole number, 1 to 127, not 0"),
        ({"levels": 128}, "option levels: a whole number, 1 to 127"),
        ({"levels": 2.5}, "option levels: a whole number"),
        ({"bucket": 7}, "option bucket: a whole number, 8 to"),
        ({"seed": "x"}, "option seed: a whole number"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], problem: str) -> None:
    with pytest.raises(InputError, match=f"compressor 'qsgd'.*{problem}"):
        compressors.refuse_options("qsgd", options)
    with pytest.raises(InputError, match="compressor 'sign' has no option"):
        compressors.refuse_options("sign", options)

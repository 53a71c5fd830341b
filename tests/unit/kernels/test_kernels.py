"""Kernels that the executor runs mean what the oracle's of the same name mean, and what torch and DDP mean by them."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradsync import compressors
from gradsync.kernels import KERNELS
from gradsync.runtime import adam, layerwise
from gradsync.runtime.kernels import EXECUTED, sgd, sgd_clipped_unread, sgd_scaled, sgd_scaled_unread
from gradsync.runtime.norms import NORM_ELEMENTS

ELEMENTS = 37
SCALE = 1 / 3  # of a sum over three ranks


def random(turn: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(turn).normal(size=ELEMENTS).astype(dtype)


def both(name, reads, writes, executed=None, **arguments):
    """The arrays of `writes` after the NumPy and after the torch kernel; the originals are left."""
    torch_writes = [torch.from_numpy(array.copy()) for array in writes]
    (executed or EXECUTED[name])([torch.from_numpy(array.copy()) for array in reads], torch_writes, **arguments)
    writes = [array.copy() for array in writes]
    KERNELS[name].compute(reads, writes, **arguments)
    return writes, [tensor.numpy() for tensor in torch_writes]


def test_every_kernel_of_the_vocabulary_can_be_executed():
    assert EXECUTED.keys() == KERNELS.keys()
    assert {name for name in EXECUTED if EXECUTED[name] is not KERNELS[name].compute} == {
        *("sgd", "sgd_scaled", "adam", "adamw", "lars", "lars_ratios", "lamb", "lamb_ratios"),
        *("sgd_unscaled", "adam_unscaled", "adamw_unscaled"),
        *("elastic_worker", "elastic_centre", "elastic_difference", "sgd_difference"),
        *("average", "outer_nesterov", "cast", "norm", "squares", "decode_sum"),
        *(f"encode_{name}" for name in (*compressors.selecting(), *compressors.coding())),
        *("powersgd_left", "powersgd_right", "powersgd_decode"),
        *(f"decode_{name}" for name in compressors.coding()),
    }


@pytest.mark.parametrize("unread", [False, True])
@pytest.mark.parametrize(("dtype", "enough"), [("float32", 1e-5), ("float64", 1e-13)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_updates_by_ratios_are_the_same_on_every_device(monkeypatch, kept, decay, dtype, enough, unread):
    """Three tensors, one of zeros; `unread`: as on a GPU, whose host never looks at a rate."""
    if unread:
        monkeypatch.setattr(layerwise, "_each", lambda rates, like: iter(rates.to(like.dtype)))
    reads, writes = [], []
    for number in range(3):
        parameter = random(number, dtype) * (number != 1)
        reads += [random(10 + number, dtype), np.array([0.2 + number], dtype)]
        writes += [parameter, *(random(20 + i, dtype) ** 2 for i in range(kept))]
    rates = {"lr": 0.3, "weight_decay": decay, "scale": SCALE}
    if kept == 2:
        done, executed = both("lamb", reads, writes, **rates, eps=1e-3, turn=3)
    else:
        done, executed = both("lars", reads, writes, **rates, momentum=0.9 * kept)
    for one, other, before in zip(done, executed, writes, strict=True):
        np.testing.assert_allclose(other, one, rtol=enough, atol=enough)
        assert np.abs(one - before).max() > 1e-4


@pytest.mark.parametrize(("dtype", "enough"), [("float32", 1e-6), ("float64", 1e-14)])
@pytest.mark.parametrize(
    ("name", "reads", "writes", "arguments"),
    [
        ("elastic_worker", 2, 1, {}),
        ("elastic_worker", 2, 2, {"momentum": 0.9}),
        ("elastic_centre", 1, 1, {}),
        ("elastic_centre", 1, 1, {"terms": 5.0}),
        ("elastic_difference", 2, 1, {}),
    ],
)
@pytest.mark.parametrize("rho", [0.6, 2.5])
def test_elastic_exchanges_in_place(name, reads, writes, arguments, dtype, enough, rho):
    before = [random(10 + number, dtype) for number in range(writes)]
    done, executed = both(
        name, [random(number, dtype) for number in range(reads)], before, lr=0.3, rho=rho, **arguments
    )
    for one, other, old in zip(done, executed, before, strict=True):
        np.testing.assert_allclose(other, one, rtol=enough, atol=enough)
        assert np.abs(one - old).max() > 1e-2


def test_what_sgd_adds_to_shared_parameters():
    done, executed = both("sgd_difference", [random(1)], [random(2)], lr=0.3)
    np.testing.assert_allclose(executed[0], done[0], rtol=1e-6)
    np.testing.assert_allclose(done[0], -0.3 * random(1), rtol=1e-6)


@pytest.mark.parametrize("elements", [1, 70_000])
def test_norms_of_lamb_are_summed_part_by_part(elements):
    generator = np.random.default_rng(elements)
    reads = [generator.normal(size=elements) ** 2 for _ in range(8)]
    (ratios,), (executed,) = both("lamb_ratios", reads, [np.zeros(2)], scale=SCALE, weight_decay=0.1, turn=2)
    np.testing.assert_allclose(executed, ratios, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs_optimizer(momentum, dtype):
    enough = 1e-12 if dtype == "float64" else 1e-5
    expected = torch.nn.Parameter(torch.from_numpy(random(99, dtype)))
    optimizer = torch.optim.SGD([expected], lr=0.1, momentum=momentum)
    writes = [random(99, dtype), np.zeros(ELEMENTS, dtype)][: 2 if momentum else 1]
    for turn in range(4):
        gradient = random(turn, dtype)
        writes, executed = both("sgd", [gradient], writes, lr=0.1, momentum=momentum, scale=SCALE)
        for one, other in zip(writes, executed, strict=True):
            assert other.dtype == one.dtype == dtype
            np.testing.assert_allclose(other, one, rtol=enough, atol=enough)
        expected.grad = torch.from_numpy(gradient * SCALE).to(expected.dtype)
        optimizer.step()
        np.testing.assert_allclose(writes[0], expected.detach().numpy(), rtol=enough, atol=enough)


# Clipping


@pytest.mark.parametrize("kernel", [sgd, sgd_clipped_unread])  # of processors, and of GPUs
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("clip", [0.5, 1.9, 100.0])  # always, at some steps, never
def test_clipping_is_torchs(clip, momentum, kernel):
    expected = torch.nn.Parameter(torch.from_numpy(random(99, "float64")))
    optimizer = torch.optim.SGD([expected], lr=0.1, momentum=momentum)
    writes = [random(99, "float64"), np.zeros(ELEMENTS)][: 2 if momentum else 1]
    clipped = []
    for turn in range(4):
        gradient = random(turn, "float64")
        ((norm,), (executed_norm,)) = both("norm", [gradient], [np.zeros(1)])
        np.testing.assert_allclose(executed_norm, norm, rtol=1e-13)
        rates = {"lr": 0.1, "momentum": momentum, "scale": SCALE, "clip": clip}
        writes, executed = both("sgd", [gradient, norm], writes, kernel, **rates)
        for one, other in zip(writes, executed, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12)
        expected.grad = torch.from_numpy(gradient * SCALE)
        clipped.append(float(torch.nn.utils.clip_grad_norm_([expected], clip)) > clip)
        optimizer.step()
        np.testing.assert_allclose(writes[0], expected.detach().numpy(), rtol=1e-12)
    assert {0.5: all(clipped), 1.9: 0 < sum(clipped) < 4, 100.0: not any(clipped)}[clip]


@pytest.mark.parametrize("kernel", [sgd, sgd_clipped_unread, sgd_scaled, sgd_scaled_unread])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weight_decay_is_torchs_of_what_clipping_leaves(momentum, kernel):
    loss_scale = 8.0 if "scaled" in kernel.__name__ else 1.0
    expected = torch.nn.Parameter(torch.from_numpy(random(99, "float64")))
    optimizer = torch.optim.SGD([expected], lr=0.1, momentum=momentum, weight_decay=0.2)
    writes = [random(99, "float64"), np.zeros(ELEMENTS)][: 2 if momentum else 1]
    writes += [np.array([loss_scale, 0, 0])] if loss_scale > 1 else []
    rates = {"lr": 0.1, "momentum": momentum, "weight_decay": 0.2, "scale": SCALE, "clip": 0.5}
    for turn in range(4):
        gradient = random(turn, "float64") * loss_scale
        reads = [gradient, np.array([np.linalg.norm(gradient)])]
        writes, executed = both("sgd_scaled" if loss_scale > 1 else "sgd", reads, writes, kernel, **rates)
        expected.grad = torch.from_numpy(gradient * SCALE / loss_scale)
        torch.nn.utils.clip_grad_norm_([expected], 0.5)
        optimizer.step()
        np.testing.assert_allclose(writes[0], expected.detach().numpy(), rtol=1e-12)
        np.testing.assert_allclose(executed[0], expected.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("clip", [0.5, 100.0])
def test_a_gradient_is_clipped_unread_as_it_is_read(clip):
    """For Adam, of GPUs and of processors."""
    gradient = torch.from_numpy(random(0, "float64"))
    reads = [gradient, gradient.norm().reshape(1)]
    whole, factor = adam.scaled(reads, SCALE, clip)
    torch.testing.assert_close(adam.scaled_unread(reads, SCALE, clip), whole * factor, rtol=1e-14, atol=0)


@pytest.mark.parametrize("kernel", [sgd_scaled, sgd_scaled_unread])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_what_is_clipped_is_the_gradient_without_its_loss_scale(momentum, kernel):
    loss_scale = 1024.0
    state = [random(99, "float64"), random(98, "float64")][: 2 if momentum else 1]
    rates = {"lr": 0.1, "momentum": momentum, "scale": SCALE, "clip": 0.5}
    gradient = random(0, "float64")
    plain, _ = both("sgd", [gradient, np.array([np.linalg.norm(gradient)])], state, **rates)
    for spoilt in (False, True):
        scaled = gradient * loss_scale
        scaled[3] = np.inf if spoilt else scaled[3]
        reads = [scaled, np.array([np.linalg.norm(scaled)])]
        ours, executed = both("sgd_scaled", reads, [*state, np.array([loss_scale, 0, 0])], kernel, **rates)
        for one, other, expected in zip(ours, executed, state if spoilt else plain, strict=False):
            np.testing.assert_allclose(one, expected, rtol=1e-12)
            np.testing.assert_allclose(other, expected, rtol=1e-12)
        assert tuple(ours[-1]) == tuple(executed[-1]) == ((512.0, 0, 1) if spoilt else (loss_scale, 1, 0))


def test_the_norm_of_a_long_gradient_is_not_rounded_away():
    gradient = torch.from_numpy(np.random.default_rng(0).normal(size=16 * NORM_ELEMENTS + 5).astype("float32"))
    norm = torch.zeros(1)
    EXECUTED["norm"]([gradient], [norm])
    assert float(norm) == pytest.approx(float(gradient.double().norm()), rel=1e-5)


# Loss scaling: what the gradient of each step holds besides numbers, and (loss scale, good steps, skipped) after it

STEPS = [
    ([], (1024.0, 1, 0)),
    ([math.inf], (512.0, 0, 1)),
    ([], (512.0, 1, 1)),
    ([], (512.0, 2, 1)),
    ([], (1024.0, 0, 1)),  # the third good one in a row
    ([math.nan], (512.0, 0, 2)),
    ([math.inf, -math.inf], (256.0, 0, 3)),
    ([], (256.0, 1, 3)),
]


@pytest.mark.parametrize("kernel", [sgd_scaled, sgd_scaled_unread])  # of processors, and of GPUs
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_loss_scale_grows_and_shrinks_and_skips(momentum, kernel):
    plain = [random(99), np.zeros(ELEMENTS, "float32")][: 2 if momentum else 1]
    scaled = [*plain, np.array([1024.0, 0.0, 0.0], "float32")]
    rates = {"lr": 0.1, "momentum": momentum, "scale": SCALE}
    for turn, (spoilt, wanted) in enumerate(STEPS):
        gradient = random(turn)
        loss_scale = float(scaled[-1][0])
        unscaled = gradient / loss_scale
        gradient[5 : 5 + len(spoilt)] = spoilt
        before = scaled
        scaled, executed = both("sgd_scaled", [gradient], before, kernel, growth_interval=3.0, **rates)
        assert tuple(scaled[-1]) == tuple(executed[-1]) == wanted
        if spoilt:
            for one, other in zip(before[:-1], executed[:-1], strict=True):
                np.testing.assert_array_equal(one, other)
        else:
            KERNELS["sgd"].compute([unscaled], plain, **rates)
        for one, other, expected in zip(scaled, executed, plain, strict=False):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)


def test_a_loss_scale_moves_as_torchs_does():
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    ours = [np.zeros(3, "float32"), np.array([1024.0, 0.0, 0.0], "float32")]
    for spoilt, _ in STEPS:
        gradient = np.ones(3, "float32") * ours[-1][0]
        gradient[: len(spoilt)] = spoilt
        scaler.scale(torch.zeros(()))  # it is made with the first loss
        weight.grad = torch.from_numpy(gradient.copy())
        scaler.step(optimizer)
        scaler.update()
        ours, _ = both("sgd_scaled", [gradient], ours, lr=0.1, growth_interval=3.0)
        assert scaler.get_scale() == ours[-1][0]
        np.testing.assert_allclose(ours[0], weight.detach().numpy(), rtol=1e-6)


@pytest.mark.parametrize("kernel", [sgd_scaled, sgd_scaled_unread])
def test_large_finite_gradients_are_not_skipped(kernel):
    gradient = np.full(ELEMENTS, 3e38, "float32")  # the sum of two is not finite in float32
    for _, scaler in both("sgd_scaled", [gradient], [random(0), np.array([1.0, 0, 0], "float32")], kernel, lr=1e-3):
        assert tuple(scaler) == (1, 1, 0)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_in_double_precision_rates_are_not_rounded(momentum):
    """As the oracle holds a plan with a loss scale."""
    writes = [random(3, "float64"), *([random(4, "float64")] if momentum else []), np.array([65536.0, 0, 0])]
    rates = {"lr": 0.1, "momentum": momentum, "scale": SCALE}
    named, executed = both("sgd_scaled", [random(5, "float64") * 65536], writes, sgd_scaled_unread, **rates)
    for one, other in zip(named, executed, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-13)


# Types


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.25])
def test_casting_to_float16_and_back(scale):
    values = random(1)
    (narrow,), (executed,) = both("cast", [values], [np.zeros(ELEMENTS, "float16")], scale=scale)
    assert executed.dtype == "float16"
    np.testing.assert_array_equal(executed, narrow)  # a power of two rounds but once
    np.testing.assert_array_equal(narrow, (values * scale).astype("float16"))
    assert (narrow.astype("float32") != values * scale).any()
    (wide,), (widened,) = both("cast", [narrow], [np.zeros(ELEMENTS, "float32")])
    np.testing.assert_array_equal(widened, wide)
    np.testing.assert_array_equal(wide, narrow.astype("float32"))


def test_what_is_cast_is_scaled_in_the_type_that_it_becomes():
    """As DDP's hook does it: what float16 doesn't hold is infinite before it is scaled; for the oracle too."""
    values = np.array([1e5, -1e5, 3.0], "float32")
    (narrow,), (executed,) = both("cast", [values], [np.zeros(3, "float16")], scale=0.01)
    np.testing.assert_array_equal(narrow[:2], [np.inf, -np.inf])
    np.testing.assert_array_equal(executed[:2], narrow[:2])
    np.testing.assert_allclose(executed[2], narrow[2], rtol=2**-10)


def test_norms_of_float16_are_summed_in_the_type_that_they_become():
    gradient = np.full(ELEMENTS, 300.0, "float16")  # the square of one is more than a float16 holds
    ((norm,), (executed,)) = both("norm", [gradient], [np.zeros(1, "float32")])
    expected = 300 * ELEMENTS**0.5
    assert float(norm[0]) == pytest.approx(expected, rel=1e-6)
    assert float(executed[0]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_narrowing_is_that_of_ddps_hooks(dtype, ranks):
    """They divide in the narrower type; NumPy has no bfloat16, but its namesake takes tensors too."""
    values = torch.from_numpy(random(2))
    executed, namesake = torch.zeros(ELEMENTS, dtype=dtype), torch.zeros(ELEMENTS, dtype=dtype)
    EXECUTED["cast"]([values], [executed], scale=1 / ranks)
    KERNELS["cast"].compute([values], [namesake], scale=1 / ranks)
    one_rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(executed, namesake, rtol=2 * one_rounding, atol=0)
    hook = values.to(dtype).div_(ranks)
    torch.testing.assert_close(executed, hook, rtol=one_rounding if ranks == 3 else 0, atol=0)


def test_what_the_narrower_type_cannot_hold_is_infinite_in_it_too():
    """So a loss scale that is too large is noticed, as with DDP's hook."""
    narrow = torch.zeros(2, dtype=torch.float16)
    EXECUTED["cast"]([torch.tensor([7e4, -7e4])], [narrow])
    assert narrow.tolist() == [math.inf, -math.inf]

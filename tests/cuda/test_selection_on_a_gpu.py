"""Compressors on a GPU select what their NumPy readings do, and MSTopK waits for nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from compressor_vectors import named
from gradsync import compressors
from gradsync.errors import RunError
from gradsync.runtime import selection
from gradsync.runtime.selection import keys, mstopk

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")

LENGTHS = (4097, 100_003, 1 << 20)  # kernels serve the longer two, of 32 bits


@pytest.mark.parametrize("elements", LENGTHS)
@pytest.mark.parametrize("vector", named(1))
@pytest.mark.parametrize("name", compressors.selecting())
def test_positions_are_those_of_the_numpy_reading(name, vector, elements):
    values = named(elements, np.float64 if vector == "layers" else np.float32)[vector]
    for k in (1, elements // 1000, elements // 20):
        with np.errstate(all="ignore"):
            try:
                expected = compressors.get(name).select(values, k, turn=7)
            except RunError:
                continue
        found = selection.get(name)(torch.from_numpy(values).cuda(), k, turn=7)
        assert torch.equal(found.cpu(), torch.from_numpy(expected))


@pytest.mark.parametrize("vector", ["layers", "ties"])
def test_mstopk_of_a_long_vector_is_the_numpy_reading(vector):
    values = named(25_000_003)[vector]
    k = len(values) // 1000
    found = mstopk.select(torch.from_numpy(values).cuda(), k, turn=7)
    assert torch.equal(found.cpu(), torch.from_numpy(compressors.get("mstopk").select(values, k, turn=7)))


@pytest.mark.parametrize("spread", ["everywhere", "in one place"])
@pytest.mark.parametrize("elements", [25_000_000, 25_000_003])
def test_mstopk_of_a_long_vector_is_the_exact_top_k(elements, spread):
    generator = torch.Generator("cuda").manual_seed(1)
    values = torch.randn(elements, device="cuda", generator=generator)
    if spread == "in one place":
        values[100:-1_000_000] *= 1e-6
    k = elements // 1000
    positions = mstopk.select(values, k, turn=3)
    wanted = torch.topk(keys(values), k).values
    assert bool((positions.diff() > 0).all())
    assert torch.equal(keys(values[positions]).sort(descending=True).values, wanted)


@pytest.mark.parametrize("part", [slice(1, None), slice(None, None, 2)], ids=["misaligned", "in steps"])
def test_mstopk_of_a_part_of_a_buffer_on_another_stream(part):
    values = torch.from_numpy(named(1 << 20)["gaussian"])[part]
    k = len(values) // 1000
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        found = mstopk.select(torch.from_numpy(named(1 << 20)["gaussian"]).cuda()[part], k, turn=7)
    stream.synchronize()
    expected = compressors.get("mstopk").select(values.numpy(), k, turn=7)
    assert torch.equal(found.cpu(), torch.from_numpy(expected))


@pytest.mark.parametrize("density", [0.001, 0.3])  # by kernels, and by torch.topk
def test_mstopk_does_not_wait_for_the_gpu(density):
    values = torch.randn(1_000_000, device="cuda")
    k = int(density * len(values))
    mstopk.select(values, k, turn=0)  # kernels are compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        mstopk.select(values, k, turn=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")

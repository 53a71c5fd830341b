"""Workloads of a few layers, written in a line or drawn at random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import strategies as st

from gradsync.costs import Linear
from gradsync.kernels import KERNELS
from gradsync.plan.workload import Layer, Workload

FREE = dict.fromkeys(KERNELS, 0.0)  # no kernel takes any time


def workload(
    sizes: Sequence[int],
    backward: Sequence[float],
    *,
    forward: float = 0.0,
    update: float = 0.0,
    forwards: Sequence[float] | None = None,
    dtype: str = "float32",
    names: Sequence[str] | None = None,
    shapes: Sequence[tuple[int, ...]] | None = None,
    kernels: Mapping[str, float] = FREE,
) -> Workload:
    """Layers of `sizes` bytes in backward order; `forwards` are forward seconds of single layers."""
    layers = tuple(
        Layer(
            name=names[i] if names else f"layer{len(sizes) - i}",
            bytes=size,
            backward_seconds=seconds,
            forward_seconds=forwards[i] if forwards else None,
            shape=shapes[i] if shapes else None,
            dtype=dtype,
        )
        for i, (size, seconds) in enumerate(zip(sizes, backward, strict=True))
    )
    return Workload(name="tiny", forward_seconds=forward, update_seconds=update, layers=layers, kernels=dict(kernels))


def integer_workload(rng: np.random.Generator, layers: int) -> Workload:
    """A workload of small whole numbers, so that ties and exact comparisons happen."""
    return workload(
        [int(size) for size in rng.integers(1, 20, layers)],
        [float(seconds) for seconds in rng.integers(0, 12, layers)],
        forward=float(rng.integers(0, 5)),
    )


def integer_cost(rng: np.random.Generator) -> Linear:
    """T(m) = a + b m with small whole a and b."""
    return Linear(float(rng.integers(0, 15)), float(rng.integers(1, 4)))


@st.composite
def workloads(draw: st.DrawFn, most_layers: int = 8) -> Workload:
    """Up to `most_layers` layers of whole float32 elements, some of them with no backward time at all."""
    seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1.0))
    sizes = draw(st.lists(st.integers(1, 5000).map(lambda elements: 4 * elements), min_size=1, max_size=most_layers))
    backward = draw(st.lists(seconds, min_size=len(sizes), max_size=len(sizes)))
    return workload(sizes, backward, forward=draw(seconds), update=draw(seconds))


costs = st.builds(Linear, st.one_of(st.just(0.0), st.floats(1e-6, 0.5)), st.floats(1e-9, 1e-4))

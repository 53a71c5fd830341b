"""Algorithm 1 (MSTopK) to the letter and corrected: what it selects of vectors of many kinds, counted.

A row per scheme, vector and density, of 65,536 elements. Values: k, selected (elements returned; -1 if the algorithm
fails), above_first and above_second (magnitudes not less than thres1 and thres2 after all samplings), recall (which
part of what is selected belongs to the exact top k).

The gradient is one of ResNet-18 on handwritten digits at its first parameters: elements at even distances, of all
layers. `ties` has more than k elements at its maximum.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync import compressors
from gradsync.compressors import Vector
from gradsync.configuration.settings import Settings
from gradsync.errors import RunError
from gradsync.papers.table import Table

ELEMENTS = 65_536
DENSITIES = (0.001, 0.01, 0.1, 0.25, 0.4, 0.6)
SCHEMES = {"mstopk_as_printed": "to the letter", "mstopk": "corrected"}
FAILED = -1
MODEL, SIDE, BATCH = "resnet18", 64, 16  # of the gradient; at fewer pixels most elements of the last layers are 0
CLIPPED = 1.5  # standard deviations: 13 % of `ties` are at the maximum


def algorithm1(settings: Settings, results: Path) -> Table:
    """A row per scheme, vector and density."""
    rows = [
        {"rung": "derived", "scheme": scheme, "vector": name, "density": density, **_selected(scheme, values, density)}
        for name, values in vectors().items()
        for scheme in SCHEMES
        for density in DENSITIES
    ]
    frame = pd.DataFrame(rows)
    parts = frame.groupby(["vector", "scheme"], sort=False)
    display = pd.DataFrame([_shown(part) for _, part in parts])
    caption = (
        f"Algorithm 1 on vectors of {ELEMENTS:,} elements: which part of the k selected elements belongs to the exact "
        "top k, by density k/d. -: it fails, since no threshold selects k elements or fewer (CT-E01). To the letter: "
        "30 samplings between mean and maximum, so that below the mean it takes any elements (CT-E03)."
    )
    return Table(frame, display, caption)


def vectors() -> dict[str, Vector]:
    """32-bit vectors by name.  # (ELEMENTS,) each"""
    random = np.random.default_rng(0)
    gaussian = random.standard_normal(ELEMENTS)
    drawn = {
        "gaussian": gaussian,
        "laplace": random.laplace(size=ELEMENTS),
        "gradient": gradient(),
        "zero": np.zeros(ELEMENTS),
        "constant": np.full(ELEMENTS, 0.1),
        "ties": gaussian.clip(-CLIPPED, CLIPPED),
    }
    return {name: values.astype(np.float32) for name, values in drawn.items()}


def gradient() -> Vector:
    """Elements of a gradient, at even distances.  # (ELEMENTS,)"""
    import torch

    from gradsync.runtime import data, models

    model = models.build(MODEL, 0).train()
    loaded = data.load("digits", model=MODEL, size=SIDE, batch=BATCH, ranks=1, seed=0)
    inputs, labels = data.shard(loaded, 0, 0)
    models.get(MODEL).loss(model(inputs), labels).backward()
    flat = torch.cat([each.grad.flatten() for each in model.parameters() if each.grad is not None])
    return np.asarray(flat[:: len(flat) // ELEMENTS][:ELEMENTS].numpy())


def _selected(scheme: str, values: Vector, density: float) -> dict[str, Any]:
    compressor, k = compressors.get(scheme), max(1, round(density * len(values)))
    found = compressor.search(values, k)
    row = {"k": k, "above_first": found.above_first, "above_second": found.above_second}
    try:
        positions = compressor.select(values, k, turn=0)
    except RunError as error:
        return row | {"selected": FAILED, "recall": np.nan, "note": str(error)}
    return row | {"selected": len(positions), "recall": compressors.recall(values, positions), "note": ""}


def _shown(part: pd.DataFrame) -> dict[str, str]:
    first = part.iloc[0]
    recalls: Iterator[tuple[float, float]] = zip(part.density, part.recall, strict=True)
    cells = {f"k/d = {density:g}": "-" if np.isnan(recall) else f"{recall:.4g}" for density, recall in recalls}
    return {"vector": first.vector, "Algorithm 1": SCHEMES[first.scheme], **cells}

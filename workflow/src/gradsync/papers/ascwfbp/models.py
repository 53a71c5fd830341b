"""Table III: parameters and gradient tensors, counted on the models' definitions."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.ascwfbp.testbed import MODELS, bench, counted
from gradsync.papers.table import Table


def table3(settings: Settings, results: Path) -> Table:
    """A row per model: as counted on its definition, and as the paper has it."""
    file = bench(settings).file
    rows = []
    for model in MODELS:
        layers = counted(model, results)
        sizes = pd.Series(layers.sizes())
        rows.append(
            {
                "rung": "derived",
                "model": model,
                "parameters": int(sizes.sum() / 4),
                "tensors": len(sizes),
                "bytes": int(sizes.sum()),
                "mean_tensor_bytes": float(sizes.mean()),
                "median_tensor_bytes": float(sizes.median()),
                "largest_tensor_bytes": int(sizes.max()),
                "published_parameters": file.number("parameters", "value", model),
                "published_tensors": int(file.number("tensors", "value", model)),
                "batch": int(file.number("batch", "value", model)),
            }
        )
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "model": frame.model.map(MODELS),
            "parameters (published) [M]": [
                f"{counted_value / 1e6:.2f} ({published / 1e6:.0f})"
                for counted_value, published in zip(frame.parameters, frame.published_parameters, strict=True)
            ],
            "tensors (published)": [
                f"{counted_value} ({published})"
                for counted_value, published in zip(frame.tensors, frame.published_tensors, strict=True)
            ],
            "gradients [MB]": (frame.bytes / 1e6).map("{:.1f}".format),
            "mean tensor [kB]": (frame.mean_tensor_bytes / 1e3).map("{:.1f}".format),
            "median tensor [kB]": (frame.median_tensor_bytes / 1e3).map("{:.1f}".format),
            "largest tensor [MB]": (frame.largest_tensor_bytes / 1e6).map("{:.1f}".format),
            "batch of a GPU": frame.batch,
        }
    )
    caption = (
        "Table III: parameters and gradient tensors of the definitions that are trained here, float32, beside the "
        "paper's. The batch is the paper's."
    )
    return Table(frame, display, caption)

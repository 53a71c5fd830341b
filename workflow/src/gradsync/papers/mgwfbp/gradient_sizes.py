"""Fig. 5(a): how large the gradients of GoogLeNet and ResNet-50 are, by the definitions of the models."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.mgwfbp.testbed import MODELS
from gradsync.papers.table import Table
from gradsync.plan.workload import Workload

IN_RANGE = (1e2, 5e6)  # parameters; Section V-A


def fig5a(settings: Settings, results: Path) -> Table:
    """Fig. 5(a) summed up: a row per model."""
    rows = []
    for model, part in _tensors(results).groupby("model", sort=False):
        rows.append(
            {
                "rung": "derived",
                "model": model,
                "tensors": len(part),
                "parameters": int(part.parameters.sum()),
                "smallest": int(part.parameters.min()),
                "median": float(part.parameters.median()),
                "largest": int(part.parameters.max()),
                "share_below": float((part.parameters < IN_RANGE[0]).mean()),
                "share_in_range": float(part.parameters.between(*IN_RANGE).mean()),
                "share_above": float((part.parameters > IN_RANGE[1]).mean()),
            }
        )
    frame = pd.DataFrame(rows)
    display = frame.drop(columns="rung").round(3)
    caption = (
        f"Fig. 5(a): parameters a gradient tensor, and the share of tensors from {IN_RANGE[0]:g} to {IN_RANGE[1]:g} "
        "parameters. Counted in this project's model definitions (GoogLeNet with both auxiliary heads and batch "
        "normalisation); a layer of the paper is a weight with its bias, here each is a tensor of its own."
    )
    return Table(frame, display, caption)


def fig5a_tensors(settings: Settings, results: Path) -> Table:
    """Fig. 5(a) in full: a row per gradient tensor, in backward order."""
    frame = _tensors(results)
    return Table(frame, frame.drop(columns="rung"), "Fig. 5(a): gradient tensors in the order of the backward pass.")


def _tensors(results: Path) -> pd.DataFrame:
    rows = []
    for model in MODELS:
        workload = Workload.load(results / "profile" / model / "workload.json")
        rows += [
            {"rung": "derived", "model": model, "tensor": layer.name, "parameters": int(layer.parameters)}
            for layer in workload.layers
        ]
    return pd.DataFrame(rows)

"""The models of the paper, counted on the definitions that are trained here: layers, weights, weights over a batch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.easgd_knl.data_sets import sample_bytes
from gradsync.papers.easgd_knl.testbed import FLOAT32, MEGA, bench, counted, label
from gradsync.papers.labels import MODELS
from gradsync.papers.table import Table

COUNTED = ("lenet5", "alexnet", "googlenet", "vgg19")
NO_BATCH = "the paper has no batch of this model"


def models(settings: Settings, results: Path) -> Table:
    """A row per model, of LeNet one at each batch of the band."""
    frame = pd.DataFrame([row for model in COUNTED for row in _rows(model, settings, results)])
    groups = frame.groupby("model", sort=False)
    first, ratio = groups.first(), groups.weights_over_batch
    display = pd.DataFrame(
        {
            "model": [MODELS[str(model)] for model in first.index],
            "layers on the longest path": first.layers.to_list(),
            "convolutional": first.convolutional.to_list(),
            "fully connected": first.fully_connected.to_list(),
            "parameters [M]": (first.parameters / 1e6).map("{:.2f}".format).to_list(),
            "weights [MB]": first.weights_megabytes.map("{:.1f}".format).to_list(),
            "weights over a batch": [
                "-" if pd.isna(least) else f"{least:.0f}" if least == most else f"{least:.0f} .. {most:.0f}"
                for least, most in zip(ratio.min(), ratio.max(), strict=True)
            ],
        }
    )
    caption = (
        "Section 4.2 and 6.1.1: the models that are trained here, layers with weights, auxiliary heads among those "
        "that are counted by kind. Weights over a batch: bytes of AlexNet over 64 samples of Cifar, and of LeNet over "
        "the band of batches of Mnist; the paper's LeNet is not described."
    )
    return Table(frame, display, caption)


def _rows(model: str, settings: Settings, results: Path) -> Iterator[dict[str, Any]]:
    from gradsync.measure import depth  # it imports torch, which the workflow does not need to know what there is

    workload, layers = counted(model, results), depth.layers(model)
    row = {
        "rung": "derived",
        "model": model,
        "assumption": "",
        "layers": layers.longest_path,
        "convolutional": layers.convolutional,
        "fully_connected": layers.fully_connected,
        "parameters": workload.bytes // FLOAT32,
        "weights_megabytes": workload.bytes / MEGA,
    }
    file = bench(settings)
    if model == "alexnet":
        batch = file.positive("cifar_batch", "value") * sample_bytes("cifar10", settings)
        yield row | {"weights_over_batch": workload.bytes / batch, "note": ""}
    elif model == "lenet5":
        for samples in map(int, file.numbers("batch", "value")):
            ratio = workload.bytes / (samples * sample_bytes("mnist", settings))
            yield row | {"assumption": label(batch=f"{samples}"), "weights_over_batch": ratio, "note": ""}
    else:
        yield row | {"weights_over_batch": None, "note": NO_BATCH}

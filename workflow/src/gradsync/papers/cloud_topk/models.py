"""The models, counted on the definitions that are trained here, and how PTO deals their layers to GPUs (Section 4.2).

A layer is a gradient tensor: ResNet-50 has 161 of them. printed: two of them a GPU, in the order of forward, so that
GPUs remain without any (CT-E21). balanced: as many layers to each GPU, up to one, and of those dealings the largest
layer first, each to the GPU that has the fewest elements (Graham, 1969). None is more even if the GPU that has most of
all elements has a single layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import pandas as pd

from gradsync.configuration.settings import Settings
from gradsync.papers.cloud_topk.numbers import PAPER
from gradsync.papers.labels import MODELS
from gradsync.papers.published import Published
from gradsync.papers.table import Table
from gradsync.papers.testbed import Testbed
from gradsync.plan.workload import Workload

COUNTED = ("resnet50", "vgg19", "transformer")
FLOAT32 = 4  # bytes
Share = tuple[int, int]  # layers and elements of a GPU


def models(settings: Settings, results: Path) -> Table:
    """A row per model."""
    known = Published(PAPER, settings)
    rows = []
    for model in COUNTED:
        sizes = sizes_of(model, results)
        row = {"rung": "derived", "model": model, "parameters": sum(sizes), "tensors": len(sizes)}
        number = f"{model}-parameters"
        rows.append(row | {"published_parameters": known.value(number) if number in known.entries else None})
    frame = pd.DataFrame(rows)
    display = pd.DataFrame(
        {
            "model": frame.model.map(MODELS),
            "parameters (published) [M]": [
                f"{count / 1e6:.2f} ({'-' if pd.isna(stated) else f'{stated / 1e6:g}'})"
                for count, stated in zip(frame.parameters, frame.published_parameters, strict=True)
            ],
            "gradient tensors": frame.tensors,
        }
    )
    caption = (
        "Section 5.3: parameters and gradient tensors of the definitions that are trained here, beside the paper's. "
        "The Transformer has the base size of the paper that is cited for it (CT-E35)."
    )
    return Table(frame, display, caption)


def pto_split(settings: Settings, results: Path) -> Table:
    """A row per model and way to deal its layers."""
    workers = int(Testbed(settings.of_paper(PAPER).testbed).positive("workers", "value"))
    a_gpu = int(Published(PAPER, settings).value("layers-per-gpu"))
    frame = pd.DataFrame([row for model in COUNTED for row in _splits(model, workers, a_gpu, results)])
    display = pd.DataFrame(
        {
            "model": frame.model.map(MODELS),
            "layers dealt": frame.split,
            "GPUs with any": frame.used,
            "all layers / most of a GPU": frame.layers_reduction.map("{:.1f}".format),
            "all elements / most of a GPU": frame.elements_reduction.map("{:.1f}".format),
        }
    )
    caption = (
        f"Section 4.2: what PTO leaves of LARS to the GPU that has most, on {workers} GPUs. printed: {a_gpu} layers a "
        "GPU, as far as there are GPUs; balanced: as many to each, up to one, and their elements as even as can be. A "
        "layer is not cut, since a norm over pieces of it needs a reduction (CT-E20)."
    )
    return Table(frame, display, caption)


def _splits(model: str, workers: int, a_gpu: int, results: Path) -> Iterator[dict[str, Any]]:
    sizes = sizes_of(model, results)
    for split, shares in (("printed", in_order(sizes, workers, a_gpu)), ("balanced", balanced(sizes, workers))):
        yield {
            "rung": "derived",
            "model": model,
            "split": split,
            "workers": workers,
            "used": sum(layers > 0 for layers, _ in shares),
            "layers_reduction": len(sizes) / max(layers for layers, _ in shares),
            "elements_reduction": sum(sizes) / max(elements for _, elements in shares),
        }


def in_order(sizes: Sequence[int], workers: int, a_gpu: int) -> list[Share]:
    """So many layers to each GPU in turn; more to each if there would be layers left."""
    each = max(a_gpu, -(-len(sizes) // workers))
    parts = [sizes[start : start + each] for start in range(0, len(sizes), each)]
    return [(len(part), sum(part)) for part in parts]


def balanced(sizes: Sequence[int], workers: int) -> list[Share]:
    """The largest layer first, each to the GPU that has the fewest elements among those with room for a layer more."""
    most = -(-len(sizes) // workers)
    open_gpus = [(0, number, 0) for number in range(workers)]  # elements, number, layers
    full: list[Share] = []
    for size in sorted(sizes, reverse=True):
        elements, number, layers = heappop(open_gpus)
        if layers + 1 < most:
            heappush(open_gpus, (elements + size, number, layers + 1))
        else:
            full.append((layers + 1, elements + size))
    return [*full, *((layers, elements) for elements, _, layers in open_gpus)]


def sizes_of(model: str, results: Path) -> list[int]:
    """Elements of each gradient tensor, in the order of forward."""
    workload = Workload.load(results / "counted" / model / "workload.json")
    return [workload.layers[number].bytes // FLOAT32 for number in workload.forward_order()]

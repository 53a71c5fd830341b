"""What one GPU of the paper does alone under each scheme, and how much faster many of them are."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from gradsync.papers.cloud_topk.testbed import INSIDE, BandPoint, Bench

DENSE, TORUS, TOPK, MSTOPK = "dense_sgd", "torus2d_sgd", "topk_sgd", "mstopk_sgd"
SCHEMES = {DENSE: "Dense-SGD", TORUS: "2DTAR-SGD", TOPK: "TopK-SGD", MSTOPK: "MSTopK-SGD"}
RESNETS = ("resnet50_96", "resnet50_128", "resnet50_224", "resnet50_288")
WITH_PTO = (TORUS, MSTOPK)


class Case(NamedTuple):
    """What one GPU does alone at a point. Samples, samples per second, seconds."""

    model: str
    counted: str  # the model whose layers it has
    batch: int
    rate: float
    computation: float  # forward and backward
    serial: float
    pto: float

    def update(self, scheme: str) -> float:
        """LARS or LAMB under a scheme."""
        return self.pto if scheme in WITH_PTO else self.serial


def case(testbed: Bench, model: str, point: BandPoint, table: str) -> Case:
    """A model of a table (`table3`, `table4`); raises InputError if the testbed lacks something of it."""
    file = testbed.file
    counted = model.partition("_")[0]
    batch = point.transformer_batch if model == "transformer" else int(file.positive("batch", "value", model))
    rates = file.content.get("single_gpu_samples_per_second", {})
    held = table if model in rates.get(table, {}) else "table4"
    rate = file.positive("single_gpu_samples_per_second", held, model)
    if counted == "vgg19":
        serial, pto = (file.numbers("vgg19_lars_seconds", key)[point.vgg19_lars] for key in ("serial", "pto"))
    else:
        serial, pto = (file.number("lars_seconds", key, counted) for key in ("serial", "pto"))
    computation = batch / rate - (serial if point.update == INSIDE else 0.0)
    return Case(model, counted, batch, rate, computation, serial, pto)


def scaling(seconds: Any, batch: int, rate: float, workers: int) -> dict[str, Any]:
    """Throughput of so many workers, and speed-up and efficiency over one; `seconds` may be an array."""
    throughput = workers * batch / seconds
    return {"throughput": throughput, "speedup": throughput / rate, "efficiency": throughput / rate / workers}


def band(at: pd.DataFrame, column: str, drawn: str, form: str) -> str:
    """The value at the point that is drawn, and in brackets the range over the band."""
    if at.empty:
        return "-"
    middle, least, most = (
        format(value, form)
        for value in (at[at.assumption == drawn][column].iloc[0], at[column].min(), at[column].max())
    )
    return middle if least == most else f"{middle} ({least} .. {most})"

"""What tables of the EASGD and KNL paper are made from, made up: counted models of few layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made_up_elastic
from gradsync import papers
from gradsync.configuration import settings
from gradsync.papers import tables
from gradsync.plan.workload import Layer, Workload

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "config/papers/easgd_knl/published.yaml"
BENCH = ROOT / "config/papers/easgd_knl/testbed.yaml"
# tensors of a model in backward order: name, elements
TENSORS = (("head.bias", 10), ("head.weight", 1_000), ("body.bias", 90), ("body.weight", 248_900))
BYTES = 4 * sum(elements for _, elements in TENSORS)  # 1 MB
MODELS = ("lenet5", "alexnet", "googlenet", "vgg19")


def configured(**changes: Any) -> settings.Settings:
    return settings.parse({"version": 1, "name": "tiny", "papers": {"easgd_knl": {}}, **changes}, "test")


def write_inputs(results: Path) -> Path:
    """The same workload for every model: 1e9 operations of a sample forward, twice as many backward."""
    layers = tuple(Layer(name=name, bytes=4 * elements, backward_seconds=0.5e-3) for name, elements in TENSORS)
    for model in MODELS:
        path = results / "counted" / model / "workload.json"
        path.parent.mkdir(parents=True)
        path.write_text(Workload(name=model, forward_seconds=1e-3, layers=layers).to_json())
    return results


def every_table(folder: Path, launches: bool = False, cores: int = 8) -> tuple[settings.Settings, Path]:
    """Settings, and results that have every table of the paper; of `launches`, on so many cores, too."""
    config = configured(elastic=made_up_elastic.launches() if launches else [])
    results = write_inputs(folder / "results")
    made_up_elastic.write_runs(config, results, cores)
    for name in papers.declared("easgd_knl").tables:
        tables.write(papers.compute("easgd_knl", name, config, results), results / "tables" / "easgd_knl", name)
    return config, results

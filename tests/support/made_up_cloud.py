"""What tables of the public-cloud top-k paper are made from, made up: counted models of few layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from gradsync import papers
from gradsync.configuration import settings
from gradsync.papers import tables
from gradsync.plan.workload import Layer, Workload

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "config/papers/cloud_topk/published.yaml"
BENCH = ROOT / "config/papers/cloud_topk/testbed.yaml"
ELEMENTS = {  # of each tensor of a model, in forward order
    "resnet50": [10, 20, 70, 100, 800],
    "vgg19": [1] * 129,
    "transformer": [5, 5],
}


def configured(**changes: Any) -> settings.Settings:
    return settings.parse({"version": 1, "name": "tiny", "papers": {"cloud_topk": {}}, **changes}, "test")


def write_inputs(results: Path) -> Path:
    """The workloads."""
    for model, sizes in ELEMENTS.items():
        backward = [
            Layer(name=f"layer{number}", bytes=4 * size, backward_seconds=1e-3) for number, size in enumerate(sizes)
        ][::-1]
        path = results / "counted" / model / "workload.json"
        path.parent.mkdir(parents=True)
        path.write_text(Workload(name=model, forward_seconds=1e-3, layers=tuple(backward)).to_json())
    return results


def narrow(folder: Path) -> str:
    """The testbed with a band of fewer points, the drawn one among them: tests of tables need no more."""
    content = yaml.safe_load(BENCH.read_text())
    content["flow_bits_per_second"]["value"] = [1e10]
    content["wire_element_bytes"]["value"] = [2]
    content["transformer_batch"]["value"] = [12]
    content["vgg19_lars_seconds"] |= {"serial": [0.011], "pto": [0.007]}
    path = folder / "narrow.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def every_table(folder: Path) -> tuple[settings.Settings, Path]:
    """Settings, and results that have every table of the paper."""
    results, config = write_inputs(folder / "results"), configured(papers={"cloud_topk": {"testbed": narrow(folder)}})
    for name in papers.declared("cloud_topk").tables:
        tables.write(papers.compute("cloud_topk", name, config, results), results / "tables" / "cloud_topk", name)
    return config, results

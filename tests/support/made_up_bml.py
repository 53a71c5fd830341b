"""What tables of the BML paper are made from, made up: a testbed with round numbers, counted models, trainings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from gradsync import papers
from gradsync.configuration import launches, settings
from gradsync.files.results import Result
from gradsync.papers import tables
from gradsync.papers.table import file, read
from gradsync.plan.workload import Layer, Workload
from made_up_repeats import repeated

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "config/papers/bml_bcube/published.yaml"
BENCH = ROOT / "config/papers/bml_bcube/testbed.yaml"
NINE = {"paper": "bml_bcube", "ranks": 9, "schemes": ["ps_p2p", "tf_ps", "bml"]}
LAUNCHES = [
    {**NINE, "model": "lenet5", "name": "batch4", "batch": 4},
    {**NINE, "model": "lenet5", "name": "batch16", "batch": 16},
    {**NINE, "model": "vgg19_eighth", "batch": 2},
]
# two layers: 1e9 operations per sample forward; the second is nearly all of the bytes
COUNTED = (("head", 4_000, 0.5e-3), ("body", 4_000_000, 1.5e-3))  # name, elements, seconds backward at 1e12 per second
RATE = 1e12  # operations per second of all GPUs of a server, in the tiny testbed
LINK = 1e8  # bytes per second


def configured(**changes: Any) -> settings.Settings:
    shown = {"mgwfbp": {}, "bml_bcube": {}}
    return settings.parse({"version": 1, "name": "tiny", "papers": shown, **changes}, "test")


def small_bench(folder: Path, **changes: Any) -> str:
    """The testbed with round numbers and two points of the band."""
    content = yaml.safe_load(BENCH.read_text())
    content |= {"gpus_per_server": {"value": 1}, "gpu_operations_per_second": {"value": RATE}}
    content |= {"link_bits_per_second": {"value": 8 * LINK}, "share_of_link_rate": {"value": [1.0, 0.1]}}
    content |= {"alpha_seconds": {"value": [0.0]}, "share_of_peak": {"lenet5": [1.0], "vgg19": [1.0]}}
    content["sub_minibatches"] = {"value": {"lenet5": [2, 4], "vgg19": [2, 4]}}
    path = folder / "bench.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return str(path)


def write_inputs(results: Path) -> Path:
    """Counted workloads, and the results of three launches."""
    layers = tuple(
        Layer(name=name, bytes=4 * elements, backward_seconds=seconds) for name, elements, seconds in COUNTED
    )
    for model in ("lenet5", "vgg19"):
        path = results / "counted" / model / "workload.json"
        path.parent.mkdir(parents=True)
        path.write_text(Workload(name=model, forward_seconds=1e-3, layers=layers).to_json())
    for number, launch in enumerate(LAUNCHES):
        job = launches.Training(**launch).job
        for scheme, seconds in (("ps_p2p", 0.5), ("tf_ps", 0.8), ("bml", 0.4)):
            Result(
                rung="measured",
                paper="bml_bcube",
                table="training",
                scheme=scheme,
                model=launch["model"],
                ranks=9,
                settings={"batch": launch["batch"]},
                **repeated(iteration_seconds=seconds * (1 + number / 100)),
                conformance={"oracle_difference": 1e-16, "difference_to_first": 0.0},
                notes=["9 ranks share 2 cores"],
            ).save(results / "runs" / "train" / job / scheme)
        folder = results / "runs" / "train" / job
        (folder / "schemes.json").write_text(json.dumps(launch["schemes"]))
    return results


def every_table(folder: Path) -> tuple[settings.Settings, Path]:
    """Settings and a results folder below `folder` with all tables of the paper."""
    results = write_inputs(folder / "results")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        config = configured(training=LAUNCHES, papers={"bml_bcube": {"testbed": small_bench(folder)}})
        for name in ("fig4", "fig4_steps", "fig5", "switches", "fig6", "fig7", "emulated", "training"):
            tables.write(papers.compute("bml_bcube", name, config, results), results / "tables" / "bml_bcube", name)
    return config, results


def table(computed: tuple[settings.Settings, Path], name: str) -> pd.DataFrame:
    """A table of the paper, as the ledger reads it."""
    return read(file(computed[1], "bml_bcube", name), ["rung"])

"""What tables of the ASC-WFBP paper are made from, made up: counted models, contention, trainings, emulated runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gradsync import papers
from gradsync.configuration import launches, settings
from gradsync.costs.contention_points import Contention
from gradsync.costs.contention_points import ContentionPoint as Measured
from gradsync.files.results import Result
from gradsync.papers import tables
from gradsync.papers.ascwfbp import losses
from gradsync.papers.table import file, read
from gradsync.plan.workload import Layer, Workload
from made_up_repeats import MOMENTS, repeated

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "config/papers/ascwfbp/published.yaml"
BENCH = ROOT / "config/papers/ascwfbp/testbed.yaml"
LAUNCH = {"paper": "ascwfbp", "model": "densenet201", "ranks": 2, "batch": 4, "schemes": ["wfbp", "ascwfbp"]}
# elements of each gradient in backward order, and operations of its backward; few, but so large that the stated
# start-up makes WFBP slower than published, as with the real models
TENSORS = {
    "resnet152": [(2_000_000, 1.0), (1_000, 0.0), *[(4_000_000, 0.5), (600, 0.2)] * 30, (9_000, 2.0)],
    "densenet201": [(400_000, 1.0), *[(2_380_000, 0.5), (300, 0.1)] * 40, (9_000, 2.0)],
    "inceptionv4": [(1_500_000, 1.0), *[(2_900_000, 0.5), (500, 0.1)] * 30, (800, 2.0)],
    "bert_base": [(700_000, 1.0), *[(8_600_000, 0.5), (800, 0.1)] * 12, (23_000_000, 0.3)],
}
ORDER = ("table3", "timelines", "fig4a", "fig4b", "fig5", "contention_points", "constants", "table4", "fig6", "table5")


def configured(**changes: Any) -> settings.Settings:
    shown = {"mgwfbp": {}, "ascwfbp": {}}
    return settings.parse({"version": 1, "name": "tiny", "papers": shown, **changes}, "test")


def net(*layers: tuple[int, float], forward: float = 0.0) -> Workload:
    net_layers = tuple(
        Layer(name=f"l{i}", bytes=size, backward_seconds=seconds) for i, (size, seconds) in enumerate(layers)
    )
    return Workload(name="net", forward_seconds=forward, layers=net_layers)


def write_counted(results: Path) -> Path:
    for model, tensors in TENSORS.items():
        layers = tuple(
            Layer(name=f"t{i}", bytes=4 * elements, backward_seconds=seconds)
            for i, (elements, seconds) in enumerate(tensors)
        )
        path = results / "counted" / model / "workload.json"
        path.parent.mkdir(parents=True)
        path.write_text(Workload(name=model, forward_seconds=1.0, layers=layers).to_json())
    return results


def write_contention(results: Path, a: float, b: float, capacity: float, *, cores: int) -> None:
    """Contention of two ranks: T_k = a + max(1, k / capacity) b m, in six sweeps that are alike."""
    points = [
        Measured(lanes=k, bytes=size, seconds=(a + max(1.0, k / capacity) * b * size,) * 6)
        for k in (1, 2)
        for size in (4096, 8192, 65536, 524288, 2097152, 4194304, 16777216)
    ]
    path = results / "profile" / "network" / "contention.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(Contention(ranks=2, points=tuple(points), provenance={"cores": cores}).to_json())


def write_training(results: Path) -> None:
    folder = results / "runs" / "train" / "densenet201-2"
    names = [*LAUNCH["schemes"], "no_communication"]
    for number, name in enumerate(names):
        seconds = 0.4 - 0.1 * number
        Result(
            rung="measured",
            paper="ascwfbp",
            table="training",
            scheme=name,
            model="densenet201",
            ranks=2,
            settings={"batch": 4},
            **repeated(iteration_seconds=seconds, computation_seconds=0.2, exposed_communication_seconds=seconds - 0.2),
            conformance={"oracle_difference": 1e-16, "difference_to_first": 0.0},
        ).save(folder / name)
    (folder / "schemes.json").write_text(json.dumps(names))


def write_emulated(
    results: Path, launch: dict[str, Any], seconds: dict[str, float], moments: tuple[float, ...] = MOMENTS
) -> None:
    """The results of a launch that takes four times as long as it stands for; `seconds` are its own, by contender."""
    job = launches.Emulation(**launch)
    run_folder, testbed_folder = results / "runs" / "emulated" / job.job, results / "emulated" / job.job
    for name, own_seconds in seconds.items():
        Result(
            rung="emulated",
            scheme=name,
            model=job.model,
            ranks=job.ranks,
            settings={"testbed": {"bits_per_second": 2e9}, "collective": "native"},
            **repeated(moments, iteration_seconds=own_seconds, exposed_communication_seconds=own_seconds - 1.2),
        ).save(run_folder / name)
    (run_folder / "schemes.json").write_text(json.dumps(list(seconds)))
    (run_folder / "status.json").write_text('{"possible": true, "reason": ""}')
    testbed_folder.mkdir(parents=True)
    (testbed_folder / "replay.json").write_text(net((4, 0.8), forward=0.4).to_json())
    points = [
        Measured(lanes=k, bytes=size, seconds=(4e-3 + k * 4e-9 * size,) * 6)
        for k in (1, 2)
        for size in (8192, 65536, 2097152, 4194304)
    ]
    (testbed_folder / "contention.json").write_text(Contention(ranks=job.ranks, points=tuple(points)).to_json())


def every_table(results: Path) -> tuple[settings.Settings, Path]:
    """Settings and a results folder with all tables of the paper."""
    write_counted(results)
    write_contention(results, 1e-3, 2e-9, 1.25, cores=4)
    write_training(results)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(losses, "INSTANCES", 30)
        patch.setattr(losses.nets, "__defaults__", (30,))
        config = configured(training=[{**LAUNCH, "profile_iterations": 0}])
        for name in (*ORDER, "own_model", "shared_link", "emulated", "training", "slowdown"):
            tables.write(papers.compute("ascwfbp", name, config, results), results / "tables" / "ascwfbp", name)
    return config, results


def table(computed: tuple[settings.Settings, Path], name: str) -> pd.DataFrame:
    """A table of the paper, as the ledger reads it."""
    return read(file(computed[1], "ascwfbp", name), ["rung"])

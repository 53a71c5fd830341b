"""What Fig. 5 to 8 of the MG-WFBP paper are made from, made up: profiles, all-reduce times and runs of this machine."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from gradsync import claims, papers
from gradsync.configuration import settings
from gradsync.files.results import Result
from gradsync.measure import carried
from gradsync.papers import tables
from gradsync.papers.mgwfbp import allreduce_times
from gradsync.plan.workload import Layer, Workload
from made_up_logs import made_up_logs
from made_up_repeats import repeated

ROOT = Path(__file__).parents[2]
REAL = {"LAYERS": carried.LAYERS, "ALLREDUCES": carried.ALLREDUCES}
ALPHA, BETA = 45.26e-6, 8 / 1e10  # seconds, seconds per byte at line rate; config/papers/mgwfbp/testbed.yaml
GOOGLENET_ALONE, RESNET50_ALONE = 64 / 163.36, 32 / 76.85  # seconds per iteration of one node
# a net of five layers, weights and biases, in forward order: elements, backward microseconds
LAYERS = [(9408, 15000.0), (110592, 20000.0), (331776, 9000.0), (884736, 8000.0), (1024000, 500.0)]
PAPER = ROOT / "config/papers/mgwfbp/published.yaml"
RUN = {"model": "googlenet", "ranks": 2}


def configured(**changes: Any) -> settings.Settings:
    return settings.parse({"version": 1, "name": "tiny", **changes}, "test")


def logged(folder: Path) -> AbstractContextManager[None]:
    """What the authors logged, made up, while the context lasts."""
    layers = [(elements + 64, microseconds, 1200 + 4e6 * 3.8e-9 * elements) for elements, microseconds in LAYERS]
    return made_up_logs(folder, layers, {2: (1e-4, 1.7e-9), 8: (7e-4, 3.0e-9)})


def profile(model: str, elements: list[int]) -> Workload:
    layers = tuple(
        Layer(name=f"t{i}.weight", bytes=4 * count, elements=count, backward_seconds=0.01 * (i + 1))
        for i, count in enumerate(elements)
    )
    return Workload(name=model, forward_seconds=0.4, update_seconds=0.1, layers=layers)


def write_network(
    results: Path, startup: dict[int, float], *, cores: int, slope: float = 1e-9, bend: float = 0.0
) -> None:
    """All-reduce times a + b M + bend M^2, in the file of a measurement of this machine."""
    rows = []
    for n, a in startup.items():
        for size in np.geomspace(1024, 2**22, 20).astype(int):
            seconds = float(a + slope * size + bend * size**2)
            rows.append(f"{n},{size},{seconds!r},{0.9 * seconds!r},{1.1 * seconds!r},1.0,1.0")
    path = results / "profile" / "network" / "allreduce.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    header = ",".join(["ranks", *allreduce_times.MEASURED[1:], "algbw_bytes_per_second", "busbw_bytes_per_second"])
    path.write_text("\n".join([f"# cores: {cores}", '# backend: "gloo"', header, *rows]) + "\n")


def write_run(results: Path, model: str, ranks: int, *, cores: int) -> None:
    folder = results / "runs" / "train" / f"{model}-{ranks}"
    names = ["wfbp", "single", "mgwfbp", "optimal", "ddp", "no_communication", "one_rank"]
    for number, name in enumerate(names):
        seconds = 0.2 + 0.1 * number
        # the more the exposed part of an iteration, the slower the moment
        made_up = repeated(iteration_seconds=seconds, exposed_communication_seconds=seconds - 0.15)
        made_up["samples"] |= {
            key: [numerator / each for each in made_up["samples"]["iteration_seconds"]]
            for key, numerator in (("speedup", ranks * 0.15), ("efficiency", 0.15))
        }
        Result(
            rung="measured",
            scheme=name,
            model=model,
            ranks=ranks,
            provenance={"cores": cores},
            summary=made_up["summary"] | {"computation_seconds": 0.15},
            samples=made_up["samples"],
            notes=[f"{ranks} ranks share {cores} cores"] if ranks > cores else [],
        ).save(folder / name)
        # two seeds, epochs of 10 turns, blocks of 6: accuracy is taken at the end of the block in which an epoch ends
        lines = ["seed,step,epoch,block,loss,iteration_seconds,accuracy"]
        for seed in (0, 1):
            for step in range(30):
                accuracy = {11: 0.3 + 0.1 * seed, 23: 0.5 + 0.1 * seed, 29: 0.7 + 0.1 * seed}.get(step, "")
                lines.append(f"{seed},{step},{step // 10},{step // 6},1.0,0.2,{accuracy}")
        (folder / name / "metrics.csv").write_text("\n".join(lines) + "\n")
    (folder / "schemes.json").write_text(json.dumps(names))


def write_inputs(results: Path) -> Path:
    for model, elements in {"googlenet": [50, 1000, 200_000], "resnet50": [64, 2048, 2_359_296, 6_000_000]}.items():
        folder = results / "profile" / model
        folder.mkdir(parents=True)
        (folder / "workload.json").write_text(profile(model, elements).to_json())
    write_network(results, {2: 2 * ALPHA, 4: 6 * ALPHA, 8: 14 * ALPHA}, cores=2)
    return results


def make(results: Path, config: settings.Settings, *ids: str) -> dict[str, pd.DataFrame]:
    """The tables of these ids, written and read as the ledger reads them."""
    for name in ids:
        tables.write(papers.compute("mgwfbp", name, config, results), results / "tables" / "mgwfbp", name)
    folder = results / "tables" / "mgwfbp"
    return {name: pd.read_csv(folder / f"{name}.csv", keep_default_na=False, na_values=[""]) for name in ids}


def verdict_of(results: Path, claim: str, rung: str) -> claims.Verdict:
    (only,) = (v for v in claims.evaluate(PAPER, results / "tables") if (v.claim, v.rung) == (claim, rung))
    return only

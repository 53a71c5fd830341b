"""Launches of `gradsync elastic`, made up, for the EASGD and KNL paper: curves that fall, each method at its pace."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from gradsync.configuration.launches import ElasticTraining
from gradsync.configuration.settings import Settings
from gradsync.costs import Linear, Network
from gradsync.engine import breakdown
from gradsync.engine.simulate import simulate
from gradsync.files.results import Result
from gradsync.papers.easgd_knl import gpu_node
from gradsync.papers.easgd_knl.names import FIGURES
from gradsync.plan.workload import Layer, Workload

SEEDS = [0, 1, 2, 3, 4, 5]
SEGMENT = 10
MIDDLE = {"lr": 0.02, "rho": 5.0, "batch": 32}  # of the paper's band
TABLE3 = ("original_easgd_no_overlap", "sync_easgd1", "sync_easgd2")
SLOW = {"async_sgd": 50.0, "original_easgd": 40.0}  # turns in which the error falls by e; 20 of all others
TURN_SECONDS = 0.125
FOR_BACKWARD = 0.075  # seconds
PLANNED_AS = {"chip_parts": "shared_tree"}  # of one layer it is the same
PARTS = {"for_backward": 6.0, "worker_worker_parameters": 2.0, "host_worker_parameters": 1.0, "worker_update": 1.0}


def launches() -> list[dict[str, Any]]:
    """Five lengths of all methods, one seed again and again, more machines, one worker with several batches, parts."""
    base = {"model": "lenet5", "workers": 4, "seeds": SEEDS, **MIDDLE}
    lengths = [
        {**base, "name": f"point{number}", "methods": list(FIGURES), "iterations": 40 * number}
        for number in range(1, 5)
    ]
    every = {**base, "methods": [*FIGURES, *TABLE3], "iterations": 200}
    again = {**base, "name": "again", "methods": ["sync_easgd1", "sync_easgd3", "async_sgd"], "iterations": 10}
    machines = {**base, "name": "machines", "workers": [1, 2, 4], "methods": ["knl_easgd"], "batch": 64}
    alone = {**base, "name": "batch", "workers": 1, "methods": ["single"], "batch": [32, 1024], "lr": [0.02, 0.1]}
    parts = {**base, "name": "parts", "methods": ["chip_parts"], "iterations": 200}
    parts_of_a_chip = [{**parts, "workers": count, "lr": 0.02 * count} for count in (1, 2)]
    again |= {"again": 5, "keep": True, "seeds": [0]}
    return [*lengths, every, again, {**machines, "iterations": 100}, alone, *parts_of_a_chip]


def write_runs(settings: Settings, results: Path, cores: int = 8) -> None:
    """What the launches of a configuration leave behind, on a machine with so many cores."""
    for launch in settings.elastic:
        for scheme in launch.methods:
            _write(launch, scheme, results / "runs" / "elastic" / launch.job / scheme, cores)


def error(scheme: str, seed: int, turns: int, launch: ElasticTraining) -> float:
    """The test error after so many turns; larger rates and more machines make it fall faster."""
    pace = (
        SLOW.get(scheme, 20.0)
        / (launch.workers if scheme in ("knl_easgd", "chip_parts") else 1)
        * (0.02 / launch.lr) ** 0.5
    )
    return 0.02 + 0.001 * seed + 0.9 * math.exp(-turns / pace)


def _write(launch: ElasticTraining, scheme: str, folder: Path, cores: int) -> None:
    plan = gpu_node.planned(PLANNED_AS.get(scheme, scheme), launch.workers)
    total = launch.iterations or 200
    rows = ["seed,step,seconds,iteration_seconds,loss,accuracy,error"]
    for seed in launch.seeds:
        for turns in range(SEGMENT, total + 1, SEGMENT):
            wrong = error(scheme, seed, turns, launch)
            seconds = TURN_SECONDS * turns * (1 + 0.01 * seed)
            rows.append(f"{seed},{turns},{seconds},{TURN_SECONDS},{2 * wrong},{1 - wrong},{wrong}")
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("\n".join(rows) + "\n")
    total_parts = sum(PARTS.values())
    shares = {f"{part}_share": PARTS.get(part, 0.0) / total_parts for part in breakdown.PARTS}
    shares["comm_share"] = sum(shares[f"{part}_share"] for part in breakdown.MESSAGES)
    trained_again = {"runs": 1.0 + launch.again, "distinct_results": 4.0 if scheme == "async_sgd" else 1.0}
    each = {**shares, "for_backward_seconds": FOR_BACKWARD, "reading_seconds": 0.1, "initialisation_seconds": 0.2}
    result = Result(
        rung="measured" if launch.testbed is None else "emulated",
        paper=launch.paper,
        table="elastic",
        scheme=scheme,
        model=launch.model,
        ranks=plan.ranks,
        settings={"device": "cpu", "turns_an_epoch": 1438 // (launch.workers * launch.batch), "seeds": launch.seeds},
        provenance={"cores": cores},
        summary={"slowest_for_backward_seconds": FOR_BACKWARD, **(trained_again if launch.again else {})},
        samples={
            "iteration_seconds": [TURN_SECONDS] * (total // SEGMENT),
            **{key: [value] * len(launch.seeds) for key, value in each.items()},
        },
        notes=[f"{plan.ranks} ranks share {cores} cores"] if plan.ranks > cores else [],
    )
    result.save(folder)
    (folder / "plan.json").write_text(plan.to_json())
    (folder / "trace.json").write_text(_trace(PLANNED_AS.get(scheme, scheme), launch.workers))
    if launch.keep:
        np.save(folder / f"final-{launch.seeds[0]}.npy", np.array([1.0, -4.0 - 1e-5 * (scheme != "sync_easgd1")]))


def _trace(scheme: str, count: int) -> str:
    plan = gpu_node.planned(scheme, count)
    layer = Layer(name=plan.tensors[0].name, bytes=4, backward_seconds=2.0)
    kernels = dict.fromkeys(("copy", "add", "elastic_difference", "sgd_difference"), 0.25)
    workload = Workload(name="tiny", forward_seconds=1.0, update_seconds=0.1, layers=(layer,), kernels=kernels)
    costs = Network(dict.fromkeys(("send", "broadcast", "reduce", "all_reduce"), Linear(0.5, 0.0)))
    return simulate(plan, workload, costs, turns=4).to_json()

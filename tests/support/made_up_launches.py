"""Emulated launches that were never run: their entries in a configuration, and the results that they would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gradsync.configuration import launches, settings
from gradsync.files.results import Result
from gradsync.measure.allreduce import point, to_csv
from gradsync.papers.emulation import StandIn
from gradsync.plan.workload import Layer, Workload
from gradsync.testbed.description import Description
from made_up_repeats import repeated

PAPERS: dict[str, Any] = {"mgwfbp": {}, "bml_bcube": {}}
SLOWER = 4.0
GOOGLENET = {"model": "googlenet", "ranks": 2, "dilation": SLOWER, "schemes": ["wfbp", "mgwfbp"], "peers": ["ddp"]}
NINE = {"paper": "bml_bcube", "model": "lenet5", "ranks": 9, "batch": 128, "dilation": SLOWER}
BML = {**NINE, "name": "bml", "topology": "bcube:3,2", "schemes": ["bml"]}
PS = {**NINE, "name": "ps", "schemes": ["ps_p2p", "tf_ps"]}
RESNET = {"paper": "ascwfbp", "model": "resnet152", "ranks": 4, "dilation": SLOWER, "schemes": ["wfbp", "kway"]}
ASC: dict[str, Any] = {"ascwfbp": {}}


def configured(*launches: dict[str, Any], **changes: Any) -> settings.Settings:
    content = {"version": 1, "name": "tiny", "papers": PAPERS, "emulated": list(launches), **changes}
    return settings.parse(content, "test")


def write_counted(results: Path, model: str, folder: str = "counted") -> None:
    path = results / folder / model / "workload.json"
    path.parent.mkdir(parents=True)
    path.write_text(workload().to_json())


def workload(forward: float = 0.5) -> Workload:
    layers = [
        Layer(name="b", bytes=4000, elements=1000, shape=(20, 50), backward_seconds=1.0),
        Layer(name="a", bytes=40, elements=10, shape=(10,), backward_seconds=0.5),
    ]
    return Workload(name="any", forward_seconds=forward, layers=tuple(layers), statistics=7)


def write_launch(
    results: Path,
    launch: dict[str, Any],
    seconds: dict[str, float],
    collective: str = "",
    blocks: tuple[float, ...] = (1.0, 0.99, 1.0, 1.01, 1.0, 1.0),
) -> None:
    """The results of an emulated launch: `seconds` are its own, by contender; predictions are 10 % below."""
    job = launches.Emulation(**launch)
    run_folder, testbed_folder = results / "runs" / "emulated" / job.job, results / "emulated" / job.job
    plans = results / "plans" / "emulated" / job.job
    for folder in (run_folder, testbed_folder, plans):
        folder.mkdir(parents=True)
    for name, own_seconds in seconds.items():
        planned = name not in ("ddp", "ddp_best")
        times = {
            "iteration_seconds": own_seconds,
            **({"exposed_communication_seconds": own_seconds - 8.0} if planned else {}),
        }
        made_up = repeated(blocks, **times)
        details = {"testbed": Description(topology=job.topology, bits_per_second=1e9).model_dump(exclude_none=True)}
        if planned:
            made_up["summary"]["messages"] = 2.0
            details["collective"] = collective or "native"
            prediction = {"iteration_seconds": 0.9 * own_seconds, "model_bound_seconds": 8.4}
            (plans / f"{name}.prediction.json").write_text(json.dumps(prediction))
        Result(
            rung="emulated",
            scheme=name,
            model=job.model,
            ranks=job.ranks,
            settings=details,
            **made_up,
            conformance={"oracle_difference": 0.0} if planned else {},
            notes=["computation replayed"],
        ).save(run_folder / name)
    (run_folder / "schemes.json").write_text(json.dumps(list(seconds)))
    (run_folder / "status.json").write_text('{"possible": true, "reason": ""}')
    stands = StandIn(workload(), 4e9, None, "any", 5e-4)
    (testbed_folder / "replay.json").write_text(stands.replayed(job).to_json())
    measured_as = "" if not collective else f"{collective}-{job.ranks}"
    points = [point(job.ranks, size, [0.004, 0.004], measured_as) for size in (40, 4000)]
    (testbed_folder / "allreduce.csv").write_text(to_csv(points, {}))


def write_impossible(results: Path, launch: dict[str, Any], reason: str) -> None:
    folder = results / "runs" / "emulated" / launches.Emulation(**launch).job
    folder.mkdir(parents=True)
    (folder / "status.json").write_text(json.dumps({"possible": False, "reason": reason}))

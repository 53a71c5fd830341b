"""What tables of the public-cloud top-k paper are made from, made up: counted models of few layers, measurements."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from gradsync import papers
from gradsync.configuration import settings
from gradsync.costs.ratio_times import RatioPoint, RatioTimes
from gradsync.costs.selection_times import SelectionPoint, SelectionTimes
from gradsync.files.results import Result
from gradsync.papers import tables
from gradsync.plan.workload import Layer, Workload
from made_up_repeats import MOMENTS, repeated

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
    write_selection(results)
    write_loading(results)
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


OPERATORS = {"exact_topk": 64.0, "dgc_topk": 16.0, "mstopk": 1.0, "mstopk_as_printed": 4.0}  # nanoseconds an element


def write_selection(results: Path, device: str = "cpu", other_work: float = 0.0, **provenance: str) -> None:
    """Times that are linear in the elements, at all lengths of Fig. 6."""
    points = [
        SelectionPoint(
            compressor=name,
            elements=elements,
            k=elements // 1000,
            selected=elements // 1000,
            recall=1.0,
            seconds=tuple(1e-9 * each * elements * moment for moment in MOMENTS),
        )
        for elements in (256_000, 512_000, *(10**6 * 2**power for power in range(8)))
        for name, each in OPERATORS.items()
    ]
    path = results / "profile" / "selection" / "times.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"measured": "6 rounds", "other_work": other_work, **provenance}
    path.write_text(SelectionTimes(device=device, density=0.001, points=tuple(points), provenance=told).to_json())


def write_ratios(
    results: Path, ranks: int, device: str = "cuda", notes: tuple[str, ...] = (), other_work: float = 0.0
) -> None:
    """What PTO makes half as long, of both models."""
    path = results / "profile" / "ratios"
    path.mkdir(parents=True, exist_ok=True)
    moments = np.array(MOMENTS)
    points = tuple(
        RatioPoint(optimizer=name, serial_seconds=tuple(each * moments), pto_seconds=tuple(each / 2 * moments))
        for name, each in (("lars", 0.01), ("lamb", 0.03))
    )
    for model, sizes in ELEMENTS.items():
        what: dict[str, Any] = {"device": device, "workload": model, "ranks": ranks, "points": points, "notes": notes}
        counts = {"tensors": len(sizes), "elements": sum(sizes)}
        times = RatioTimes(**what, **counts, provenance={"other_work": other_work})
        (path / f"{model}-{ranks}.json").write_text(times.to_json())


READING = {"naive": 0.3, "local_files": 0.2, "datacache": 0.02, "datacache_reduced": 0.01}  # seconds


def write_loading(
    results: Path,
    device: str = "cpu",
    model: str = "resnet18",
    notes: tuple[str, ...] = (),
    folder: str | None = "/photographs",
) -> None:
    """An iteration computes for 0.15 s, while the next one's samples are read."""
    for loader, seconds in READING.items():
        iteration = max(0.15, seconds)
        numbers = {"io_seconds": seconds, "iteration_seconds": iteration, "throughput": 4 / iteration}
        numbers["exposed_io_seconds"] = max(1e-5, seconds - 0.15)
        of_run = {"device": device, "model": model, "size": 96, "batch": 4, "data_folder": folder}
        run = Result(rung="measured", scheme=loader, model=f"{model}_96", ranks=1, settings=of_run, notes=[*notes])
        run = run.model_copy(update=repeated(**numbers))
        run.save(results / "runs" / "loading" / f"{model}_96" / loader)


SCHEMES = ["dense_sgd", "topk_sgd", "topk_sgd_without_feedback", "mstopk_sgd_hundredth"]
SPARSE = {"model": "lenet5", "paper": "cloud_topk", "ranks": 8, "ranks_a_node": 2, "name": "sparse", "schemes": SCHEMES}


def write_training(results: Path, accuracies: dict[str, tuple[float, float]], seeds: int = 6) -> None:
    """Accuracies after each of two epochs of five turns; a seed more is a hundredth more."""
    folder = results / "runs" / "train" / "lenet5-8-sparse"
    for name, by_epoch in accuracies.items():
        lines = ["seed,step,epoch,accuracy"]
        for seed in range(seeds):
            ends = {4: by_epoch[0] + seed / 100, 9: by_epoch[1] + seed / 100}
            lines += [f"{seed},{step},{step // 5},{ends.get(step, '')}" for step in range(10)]
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "metrics.csv").write_text("\n".join(lines) + "\n")
    (folder / "schemes.json").write_text(json.dumps([*accuracies]))


def write_to_accuracy(folder: Path, seconds: dict[str, float | None]) -> None:
    """A launch of two seeds that stops at an accuracy: the time to it by scheme, None if no seed has reached it."""
    for name, each in seconds.items():
        reached = {"reached_target": 0.0} if each is None else {"reached_target": 2.0, "seconds_to_accuracy": each}
        summary = {"seeds": 2.0, "accuracy": 0.95 if each else 0.85, **reached}
        run = Result(rung="measured", scheme=name, model="resnet18", ranks=8, settings={}, notes=["of one machine"])
        run.model_copy(update={"summary": summary}).save(folder / name)
    (folder / "schemes.json").write_text(json.dumps([*seconds]))


THROUGHPUT = {"model": "resnet50", "size": 96, "batch": 256, "paper": "cloud_topk", "ranks": 128, "ranks_a_node": 8}
THROUGHPUT |= {"name": "size96", "data": "synthetic", "iterations": 240, "block": 20, "schemes": ["mstopk_sgd"]}
ITERATIONS = {"horovod_buckets": 0.4, "torus2d_native": 0.25, "mstopk_sgd": 0.2}  # seconds


def write_throughput(results: Path, job: str = "resnet50-128-size96", notes: tuple[str, ...] = ()) -> None:
    """Iterations of 128 ranks beside one rank alone, which takes 0.05 s."""
    folder = results / "runs" / "train" / job
    for name, seconds in ITERATIONS.items():
        numbers = {"iteration_seconds": seconds, "exposed_communication_seconds": seconds - 0.05}
        numbers |= {"computation_seconds": 0.05, "efficiency": 0.05 / seconds, "speedup": 128 * 0.05 / seconds}
        run = Result(rung="measured", scheme=name, model="resnet50", ranks=128, settings={}, notes=[*notes])
        run.model_copy(update=repeated(**numbers)).save(folder / name)
    (folder / "schemes.json").write_text(json.dumps(["one_rank", "no_communication", *ITERATIONS]))


TRANSLATION = {**SPARSE, "model": "transformer_small", "data": "translation", "name": "translation"}


def write_translation(results: Path, scores: dict[str, float], seeds: int = 6) -> None:
    """BLEU after each of two epochs of five turns, the first half as good; a seed more is a tenth more."""
    folder = results / "runs" / "train" / "transformer_small-8-translation"
    for name, last in scores.items():
        lines = ["seed,step,epoch,accuracy,bleu"]
        for seed in range(seeds):
            ends = {4: f"0.4,{last / 2 + seed / 10}", 9: f"0.6,{last + seed / 10}"}
            lines += [f"{seed},{step},{step // 5},{ends.get(step, ',')}" for step in range(10)]
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "metrics.csv").write_text("\n".join(lines) + "\n")
    (folder / "schemes.json").write_text(json.dumps([*scores]))


def every_table(folder: Path) -> tuple[settings.Settings, Path]:
    """Settings, and results that have every table of the paper."""
    results, config = write_inputs(folder / "results"), configured(papers={"cloud_topk": {"testbed": narrow(folder)}})
    for name in papers.declared("cloud_topk").tables:
        tables.write(papers.compute("cloud_topk", name, config, results), results / "tables" / "cloud_topk", name)
    return config, results

"""Traces that PyTorch's profiler really records here become workloads that say what the traces say."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recorded
from gradsync.experiments import advise, imported, predict
from gradsync.plan.workload import Workload

MODEL = f"{recorded.__file__}:make"
MICRO = 1e-6


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded.single(tmp_path_factory.mktemp("recorded"))


def events(trace: Path) -> list[dict[str, Any]]:
    listed = json.loads(trace.read_text())["traceEvents"]
    return sorted((each for each in listed if each.get("ph") == "X"), key=lambda each: each["ts"])


def load(trace: Path, folder: Path, **options: Any) -> tuple[Workload, dict[str, Any]]:
    told = imported.load(imported.Options(traces=(trace,), output=folder / "workload.json", **options))
    return Workload.load(folder / "workload.json"), told


def test_gradients_have_the_times_the_order_and_the_sizes_of_autograd(trace, tmp_path):
    """Each gradient leaves a note in the trace once it is in its place, in a hook that belongs to that."""
    workload, told = load(trace, tmp_path, model=MODEL)
    assert told["steps"] == recorded.STEPS - 1
    every = events(trace)
    steps = [each for each in every if each["name"].startswith("ProfilerStep")][1:]
    ready = []
    for step in steps:
        inside = [each for each in every if step["ts"] <= each["ts"] < step["ts"] + step["dur"]]
        begun = next(each["ts"] for each in inside if each["name"].startswith("autograd::engine::evaluate_function"))
        notes = [each for each in inside if each["name"].startswith(recorded.READY)]
        placed = [each for each in inside if each["name"] == "torch::autograd::AccumulateGrad"]
        ends = [each["ts"] + each["dur"] for each in placed]
        assert [layer.name for layer in workload.layers] == [each["name"][len(recorded.READY) :] for each in notes]
        for gradient, end, note in zip(placed, ends, notes, strict=True):
            assert gradient["ts"] <= note["ts"] <= note["ts"] + note["dur"] <= end
        ready.append(np.diff([begun, *ends]) * MICRO)
    measured = [layer.backward_seconds for layer in workload.layers]
    assert measured == pytest.approx(np.mean(ready, axis=0), rel=1e-6, abs=1e-9)
    shapes = {name: parameter.numel() for name, parameter in recorded.make()[0].named_parameters()}
    assert {layer.name: layer.elements for layer in workload.layers} == shapes


def test_the_times_of_layers_add_up_to_the_step(trace, tmp_path):
    workload, told = load(trace, tmp_path)
    assert sum(layer.forward_seconds for layer in workload.layers) == pytest.approx(workload.forward_seconds, rel=1e-9)
    assert workload.backward_seconds == pytest.approx(told["backward_seconds"], rel=1e-9)
    assert workload.forward_seconds == pytest.approx(told["forward_seconds"], rel=1e-9)
    assert told["computation_seconds"] <= told["step_seconds"]
    steps = [each["dur"] * MICRO for each in events(trace) if each["name"].startswith("ProfilerStep")][1:]
    assert told["step_seconds"] == pytest.approx(np.mean(steps), rel=1e-6)
    updates = [each["dur"] * MICRO for each in events(trace) if each["name"].startswith("Optimizer.")]
    per_step = np.reshape(updates, (-1, 2)).sum(axis=1)[1:]  # zero_grad and step
    assert workload.update_seconds == pytest.approx(per_step.mean(), rel=1e-6)
    # a convolution is needed before the batch normalisation that follows it
    places = {layer.elements: layer.forward_index for layer in workload.layers}
    assert places[3 * 8 * 9] < places[8 * 16 * 9] < places[16 * 7 * 7 * 10]


def test_an_execution_trace_gives_the_sizes_that_a_profile_lacks(trace, tmp_path):
    whole, _ = load(trace, tmp_path)
    content = json.loads(trace.read_text())
    for each in content["traceEvents"]:
        for key in ("Input Dims", "Input type"):
            each.get("args", {}).pop(key, None)
    bare = tmp_path / "bare.json.gz"
    bare.write_bytes(gzip.compress(json.dumps(content).encode()))
    workload, _ = load(bare, tmp_path, execution_trace=trace.with_name("execution.json"))
    assert [layer.bytes for layer in workload.layers] == [layer.bytes for layer in whole.layers]
    named, _ = load(bare, tmp_path, model=MODEL)
    assert [layer.bytes for layer in named.layers] == [layer.bytes for layer in whole.layers]


@pytest.mark.parametrize("told", ["nothing", "annotation"])
def test_steps_are_found_without_those_of_the_profiler(told, tmp_path):
    """From one update to the next; or as an annotation says, which may be around each of several micro-batches."""
    net = recorded.make()[0]
    trace = tmp_path / "plain.json"
    recorded.train(net, trace, annotated=False)
    annotation = None
    if told == "annotation":
        content = json.loads(trace.read_text())
        updates = [each for each in content["traceEvents"] if each.get("name", "").startswith("Optimizer.step")]
        first = min(each["ts"] for each in content["traceEvents"] if each.get("ph") == "X")
        bounds = [first, *(each["ts"] + each["dur"] for each in sorted(updates, key=lambda each: each["ts"]))]
        content["traceEvents"] += [
            {"ph": "X", "cat": "user_annotation", "name": f"turn {number}", "ts": low, "dur": high - low}
            for number, (low, high) in enumerate(pairwise(bounds))
        ]
        trace.write_text(json.dumps(content))
        annotation = "turn"
    workload, answer = load(trace, tmp_path, step_annotation=annotation)
    assert answer["steps"] == recorded.STEPS - 1
    assert len(workload.layers) == len(list(net.parameters()))
    assert answer["computation_seconds"] <= answer["step_seconds"] * (1 + 1e-9)


def test_what_is_imported_is_planned_for(trace, tmp_path):
    load(trace, tmp_path)
    given = {"workload": str(tmp_path / "workload.json"), "allreduce": "a=1e-4,b=1e-9"}
    planned = predict.plan(predict.Options(schedule="optimal", **given))
    workload = Workload.load(tmp_path / "workload.json")
    assert planned["iteration_seconds"] >= workload.forward_seconds + workload.backward_seconds
    ranking = advise.advise(advise.Options(ranks=4, **given))["ranking"]
    assert any(row["scheme"] == "mgwfbp" for row in ranking)

"""Profiles with times that are easy to add up: GPUs, several ranks, points, and traces that are refused."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

import made_up_traces as made_up
from gradsync.cli import main
from gradsync.costs import fitted
from gradsync.experiments import imported
from gradsync.interchange.queue import Host, Kernel, Queue
from gradsync.plan.workload import Workload

SHAPES = ((10,), (10, 20), (20, 5))


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def load(folder: Path, *contents: Any, **options: Any) -> tuple[Workload, dict[str, Any]]:
    traces = tuple(write(folder, f"trace{number}.json", each) for number, each in enumerate(contents))
    told = imported.load(imported.Options(traces=traces, output=folder / "w.json", **options))
    return Workload.load(folder / "w.json"), told


def test_what_the_host_computes_takes_what_it_took(tmp_path):
    workload, told = load(tmp_path, made_up.profile(SHAPES, steps=8), name="net")
    each = (made_up.BACKWARD + made_up.PLACED) * 1e-6
    assert [layer.backward_seconds for layer in workload.layers] == pytest.approx([each] * 3)
    assert [layer.forward_seconds for layer in workload.layers] == pytest.approx([made_up.FORWARD * 1e-6] * 3)
    assert [layer.forward_index for layer in workload.layers] == [2, 1, 0]
    assert workload.update_seconds == pytest.approx(made_up.UPDATE * 1e-6)
    assert [layer.bytes for layer in workload.layers] == [40, 800, 400]
    assert (workload.name, told["steps"]) == ("net", 7)
    assert told["backward_low"] == pytest.approx(told["backward_seconds"]) == pytest.approx(told["backward_high"])


def test_an_optimizer_in_another_counts_once(tmp_path):
    """As one does that wraps the optimizer of a library: both steps are annotated."""
    content = made_up.profile(SHAPES, steps=8)
    inner = [
        each | {"name": "Optimizer.step#SGD.step", "ts": each["ts"] + 5, "dur": each["dur"] - 9}
        for each in content["traceEvents"]
        if each["name"].startswith(UPDATE)
    ]
    workload, _ = load(tmp_path, content | {"traceEvents": [*content["traceEvents"], *inner]})
    assert workload.update_seconds == pytest.approx(made_up.UPDATE * 1e-6)


def test_without_steps_and_updates_each_backward_is_a_step_and_a_note_says_so(tmp_path):
    workload, told = load(tmp_path, without(without(made_up.profile(SHAPES, steps=8), STEPS), "Optimizer"))
    assert told["steps"] == 7
    assert workload.update_seconds == 0
    assert any("nothing but backward tells steps apart" in note for note in told["notes"])


def test_the_last_backward_without_its_update_is_no_step(tmp_path):
    content = without(made_up.profile(SHAPES, steps=8), STEPS)
    last = max(each["ts"] for each in content["traceEvents"] if each["name"].startswith(UPDATE))
    content["traceEvents"] = [each for each in content["traceEvents"] if each["ts"] < last]
    workload, told = load(tmp_path, content)
    assert told["steps"] == 6
    assert workload.update_seconds == pytest.approx(made_up.UPDATE * 1e-6)


@pytest.mark.parametrize("annotated", [True, False])
def test_setting_gradients_to_zero_between_forward_and_backward_is_part_of_the_update(tmp_path, annotated):
    content = made_up.profile(SHAPES, steps=8, zeroed=True)
    if not annotated:
        content["traceEvents"] = [each for each in content["traceEvents"] if "ProfilerStep" not in each["name"]]
    workload, _ = load(tmp_path, content)
    gap = 0 if annotated else made_up.GAP  # which then belongs to no step, and to the time before forward
    assert workload.forward_seconds == pytest.approx((3 * made_up.FORWARD + gap) * 1e-6)
    assert workload.update_seconds == pytest.approx((made_up.UPDATE + made_up.ZEROED) * 1e-6)


def test_a_recording_is_not_overwritten(tmp_path, capsys):
    trace = write(tmp_path, "trace.json", GOOD)
    before = trace.read_bytes()
    other = str(tmp_path / "w.json")
    for options in (["--output", str(trace)], ["--output", other, "--points", other]):
        assert main(["import", str(trace), *options]) == 2
        assert "would be overwritten" in capsys.readouterr().err
    assert trace.read_bytes() == before


def test_a_link_to_itself_is_no_trace(tmp_path, capsys):
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert main(["import", str(loop), "--output", str(tmp_path / "w.json")]) == 2
    assert f"trace {loop}: can't be read" in capsys.readouterr().err


def test_what_a_gpu_computes_takes_what_its_kernels_took(tmp_path):
    """The host is far ahead of it: its own times are not those of the layers."""
    workload, _ = load(tmp_path, made_up.profile(SHAPES, device=True))
    assert workload.provenance["device"] == "cuda"
    each = 2 * (made_up.BACKWARD + made_up.PLACED) * 1e-6
    assert [layer.backward_seconds for layer in workload.layers] == pytest.approx([each] * 3)
    assert workload.forward_seconds == pytest.approx(2 * 3 * made_up.FORWARD * 1e-6)
    assert workload.update_seconds == pytest.approx(2 * made_up.UPDATE * 1e-6)


def test_messages_on_a_gpu_are_no_computation(tmp_path):
    """Those of NCCL are kernels that say what they carry; the optimizer's kernels wait for them."""
    content = made_up.profile(SHAPES, device=True, rank=0, ranks=8)
    workload, told = load(tmp_path, content, points=tmp_path / "points.csv")
    each = 2 * (made_up.BACKWARD + made_up.PLACED) * 1e-6
    assert [layer.backward_seconds for layer in workload.layers] == pytest.approx([each] * 3)
    assert workload.update_seconds == pytest.approx(2 * made_up.UPDATE * 1e-6)
    (point,) = told["points"]
    assert (point["ranks"], point["bytes"]) == (8, 2 * 310)
    assert point["seconds"] == pytest.approx(made_up.MESSAGE * 1e-6)
    assert any("1 of 8 ranks" in note for note in told["notes"])
    assert any("one size only" in note for note in told["notes"])


def test_a_queue_is_reached_when_what_was_launched_before_is_done():
    queue = Queue([Kernel(0.0, 1.0, 3.0), Kernel(2.0, 3.0, 4.0), Kernel(6.0, 9.0, 9.5)])
    assert [queue.reached(moment) for moment in (0.0, 0.5, 2.5, 5.0, 7.0)] == [0.0, 3.0, 4.0, 5.0, 9.5]
    assert queue.begun(5.0, 7.0) == 9.0  # the device waited for a message before it
    assert queue.begun(7.0, 8.0) == 9.5


def test_a_queue_is_busy_while_any_kernel_runs():
    queue = Queue([Kernel(0.0, 1.0, 3.0), Kernel(0.0, 2.0, 2.5), Kernel(2.0, 3.0, 4.0), Kernel(6.0, 9.0, 9.5)])
    assert queue.runs == [(1.0, 4.0), (9.0, 9.5)]
    assert queue.busy(0.0, 10.0) == 3.5
    assert queue.busy(2.0, 9.25) == 2.25
    assert queue.busy(5.0, 8.0) == 0.0
    assert Queue([]).busy(0.0, 1.0) == 0.0


def test_a_host_that_launches_late_is_told(tmp_path):
    """Kernels that run for half as long begin as late as before."""
    content = made_up.profile(SHAPES, device=True)
    assert not any("the GPU ran" in note for note in load(tmp_path, content)[1]["notes"])
    for event in content["traceEvents"]:
        if event.get("cat") == "kernel":
            event["dur"] /= 2
    _, told = load(tmp_path, content)
    assert any("the GPU ran kernels or messages in 5" in note for note in told["notes"])


def test_a_gpu_that_waits_for_a_message_is_not_idle(tmp_path):
    content = made_up.profile(SHAPES, device=True, rank=0)
    for event in content["traceEvents"]:
        if event["name"].startswith("nccl"):
            event["dur"] *= 20
    assert not any("the GPU ran" in note for note in load(tmp_path, content)[1]["notes"])


def test_the_clock_of_a_host_stands_still_in_calls():
    host = Host([(1.0, 2.0), (4.0, 7.0)])
    assert [host.reached(moment) for moment in (0.5, 1.5, 3.0, 5.0, 8.0)] == [0.5, 1.0, 2.0, 3.0, 4.0]


def test_ranks_are_told_apart_from_their_clocks(tmp_path):
    """Rank 1 is slower, so rank 0 waits for it in each message; the clock of rank 1 is two seconds ahead."""
    slower = 1.5
    apart = (3 * (made_up.FORWARD + made_up.BACKWARD + made_up.PLACED)) * (slower - 1)
    behind = (slower - 1) * made_up.UPDATE
    first = made_up.profile(SHAPES, steps=8, rank=0, late=apart + behind)
    second = made_up.profile(SHAPES, steps=8, rank=1, slower=slower, begins=1e6 + 2e6)
    workload, told = load(tmp_path, second, first, points=tmp_path / "points.csv")
    assert [each["rank"] for each in told["of_ranks"]] == [0, 1]
    assert told["of_ranks"][1]["clock_ahead"] == pytest.approx(2.0, rel=1e-3)
    assert told["imbalance"] == pytest.approx(slower / (1 + slower) * 2)
    assert told["arrival_seconds"] == pytest.approx((apart + behind) * 1e-6, rel=0.1)
    each = (made_up.BACKWARD + made_up.PLACED) * 1e-6
    assert [layer.backward_seconds for layer in workload.layers] == pytest.approx([each * (1 + slower) / 2] * 3)
    spread = workload.provenance["backward_spread_seconds"]
    assert list(spread.values()) == pytest.approx([each * (slower - 1)] * 3)
    (point,) = told["points"]
    assert (point["bytes"], point["ranks"], point["repeats"]) == (1240, 2, 7)
    assert point["seconds"] == pytest.approx(made_up.MESSAGE * 1e-6)  # rank 1's, which waits for nobody
    sizes, seconds = fitted.load_points(tmp_path / "points.csv", 2)
    assert (sizes.tolist(), seconds.tolist()) == ([1240.0], pytest.approx([made_up.MESSAGE * 1e-6]))


def without(content: dict[str, Any], word: str) -> dict[str, Any]:
    return content | {"traceEvents": [each for each in content["traceEvents"] if word not in each["name"]]}


def in_pairs(content: dict[str, Any]) -> dict[str, Any]:
    """With an annotation that spans two steps each."""
    steps = [each for each in content["traceEvents"] if each["name"].startswith("ProfilerStep")]
    pairs = [
        first | {"name": f"pair#{number}", "dur": second["ts"] + second["dur"] - first["ts"]}
        for number, (first, second) in enumerate(zip(steps[::2], steps[1::2], strict=True))
    ]
    return content | {"traceEvents": [*content["traceEvents"], *pairs]}


def unsized(content: dict[str, Any]) -> dict[str, Any]:
    for each in content["traceEvents"]:
        each["args"].pop("Input Dims", None)
    return content


def timed(name: str, **times: Any) -> dict[str, Any]:
    """GOOD, and one event of that name has other times; those that are None are left out."""
    content = json.loads(json.dumps(GOOD))
    event = next(each for each in content["traceEvents"] if each["name"] == name)
    event.update(times)
    for key in [key for key, value in times.items() if value is None]:
        del event[key]
    return content


def accumulated(content: dict[str, Any], *names: str) -> dict[str, Any]:
    """In every other step nothing of these names: two micro-batches per update."""
    steps = sorted(
        (each["ts"], each["ts"] + each["dur"]) for each in content["traceEvents"] if "ProfilerStep" in each["name"]
    )[::2]
    kept = [
        each
        for each in content["traceEvents"]
        if not each["name"].startswith(names) or not any(low <= each["ts"] < high for low, high in steps)
    ]
    return content | {"traceEvents": kept}


def unranked(**options: Any) -> dict[str, Any]:
    """With messages, and without saying of which rank it is, as older recorders write it."""
    content = made_up.profile(SHAPES, **options)
    del content["distributedInfo"]
    return content


def overlapping(content: dict[str, Any]) -> dict[str, Any]:
    """Each of the profiler's steps reaches into the next one."""
    events = [
        each | {"dur": 2 * each["dur"]} if each["name"].startswith(STEPS) else each for each in content["traceEvents"]
    ]
    return content | {"traceEvents": events}


def renamed(content: dict[str, Any], before: str, after: str) -> dict[str, Any]:
    return json.loads(json.dumps(content).replace(before, after))


STEPS, UPDATE = "ProfilerStep", "Optimizer.step"
RECORDED = '"Input Dims": [[10]], "Input type": ["float"]'
GRADIENT = "torch::autograd::AccumulateGrad"
GOOD = made_up.profile(SHAPES)
TENSORFLOW = {
    "traceEvents": [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/host:CPU"}},
        {"ph": "X", "pid": 1, "tid": 1, "ts": 1.0, "dur": 2.0, "name": "Conv2DBackpropFilter"},
    ]
}


@pytest.mark.parametrize(
    ("contents", "options", "words"),
    [
        ([without(GOOD, "AccumulateGrad")], {}, "has no gradients: no torch::autograd::AccumulateGrad among"),
        ([json.dumps(GOOD)[:-400]], {}, "not JSON: .*"),
        ([made_up.profile(SHAPES, steps=1)], {}, r"has 1 step\(s\) with a backward pass, of which 1"),
        ([made_up.profile(SHAPES, steps=1)], {"warm_up": 0}, r"has 1 step\(s\) with a backward pass, of which 0"),
        ([GOOD], {"warm_up": 4}, r"has 4 step\(s\)"),
        ([TENSORFLOW], {}, "a trace of TensorFlow"),
        ([{"traceEvents": []}], {}, "no trace of PyTorch's profiler"),
        ([{"nodes": []}], {}, "no list traceEvents"),
        (["[" * 100_000], {}, "not JSON|nested too deep"),
        (
            [made_up.profile(SHAPES, rank=0), made_up.profile(SHAPES[:2], rank=1)],
            {},
            "has 2 gradients, and trace .* 3: all steps of all ranks must be of one model",
        ),
        (
            [made_up.profile(SHAPES, rank=0), made_up.profile((*SHAPES[:2], (7,)), rank=1)],
            {},
            r"has a gradient 2 of shape .*\[7\].*, and trace .* one of .*\[20, 5\]",
        ),
        (
            [made_up.profile(SHAPES, rank=0), made_up.profile(SHAPES, rank=1, steps=5)],
            {},
            "trace1.json has 5 steps, and .*trace0.json 4: record the same steps",
        ),
        ([made_up.profile(SHAPES, rank=1)] * 2, {}, "trace0.json and .*trace1.json are both of rank 1"),
        ([GOOD, made_up.profile(SHAPES, begins=5e6)], {}, "tells no rank and has no message to others"),
        ([unranked(rank=0)] * 2, {}, "trace0.json and .*trace1.json are of the same rank"),
        ([made_up.profile(SHAPES, rank=0), unranked(rank=1)], {}, "trace1.json doesn't tell its rank"),
        (
            [made_up.profile(SHAPES, rank=0), made_up.profile(SHAPES, rank=1, ranks=3)],
            {},
            "trace1.json is of a training of 3 ranks, and .*trace0.json of 2",
        ),
        (
            [made_up.profile(SHAPES, rank=0), renamed(made_up.profile(SHAPES, rank=1), "Addmm", "Convolution")],
            {},
            "backward of one of them alone has AddmmBackward0",
        ),
        (
            [without(accumulated(made_up.profile(SHAPES, steps=8, zeroed=True), UPDATE, "Optimizer.zero"), STEPS)],
            {},
            "has 2 backward passes",
        ),
        ([without(accumulated(GOOD, UPDATE), STEPS)], {}, r"has 2 backward passes \(micro-batches"),
        ([accumulated(made_up.profile(SHAPES, steps=8), UPDATE)], {}, "step 2 has no Optimizer.step, and step 1 has"),
        ([overlapping(GOOD)], {}, "annotations ProfilerStep#0 and ProfilerStep#1 overlap"),
        (
            [renamed(GOOD, RECORDED, RECORDED.replace("float", "half"))],
            {},
            "no workload: .*: layers of different dtype",
        ),
        ([unsized(made_up.profile(SHAPES))], {}, r"gradient 0 has no size \(3 such\)"),
        ([GOOD], {"step_annotation": "epoch"}, "--step-annotation epoch: no such annotation; it has: Optimizer.step"),
        ([in_pairs(GOOD)], {"step_annotation": "pair"}, r"has 2 backward passes \(micro-batches"),
        ([GOOD], {"points": Path("points.csv")}, "has no all-reduce of known size"),
        (
            [renamed(GOOD, "AddmmBackward0", "CheckpointFunctionBackward")],
            {},
            "CheckpointFunctionBackward, of which inputs get",
        ),
        ([timed(GRADIENT, dur=math.nan)], {}, f"trace0.json: event '{GRADIENT}' has duration nan"),
        ([timed(GRADIENT, dur=-1.0)], {}, f"trace0.json: event '{GRADIENT}' has duration -1.0"),
        ([timed(GRADIENT, dur=None)], {}, f"trace0.json: event '{GRADIENT}' has no duration"),
        ([timed(GRADIENT, ts=math.inf)], {}, f"trace0.json: event '{GRADIENT}' has moment inf"),
        ([timed("aten::linear", ts=10**400)], {}, "trace0.json: event 'aten::linear' has moment 1000"),
        ([timed("ProfilerStep#2", ts="soon")], {}, "trace0.json: event 'ProfilerStep#2' has moment 'soon'"),
        ([GOOD | {"baseTimeNanoseconds": 10**400}], {}, "baseTimeNanoseconds is no moment"),
        ([GOOD | {"distributedInfo": {"rank": 2, "world_size": 2}}], {}, "has rank 2 of a world_size 2"),
        ([GOOD | {"distributedInfo": {"rank": -1}}], {}, "has rank -1"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_what_cannot_be_imported_is_refused_by_name(contents, options, words, tmp_path, capsys):
    traces = [write(tmp_path, f"trace{number}.json", each) for number, each in enumerate(contents)]
    given = [word for key, value in options.items() for word in (f"--{key.replace('_', '-')}", value)]
    status = main([*map(str, ("import", *traces, "--output", tmp_path / "w.json", *given))])
    error = capsys.readouterr().err
    assert status == 2
    assert error.count("\n") == 1
    assert re.search(words, error), error
    assert not (tmp_path / "w.json").exists()

"""What one GPU can show: queues and marks, every schedule against plain torch, whole launches of one rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import real_models as real
import small_model
from gradsync import schedules
from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.plan import Plan
from gradsync.plan.trace import Trace
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from gradsync.runtime.compute import ModelCompute, bind, bind_statistics
from gradsync.runtime.devices import Device
from gradsync.runtime.enqueue import Enqueuer, prepare
from gradsync.runtime.group import Groups
from gradsync.runtime.launch import VARIABLES
from gradsync.slurm.machine import free_ports
from waiting import HANGS_SECONDS, until

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")

ROOT = Path(__file__).parents[2]
ENOUGH = {torch.float64: 1e-9, torch.float32: 1e-5}
SECOND = 2_000_000_000  # clock cycles: a second or so


# Queues and marks


def test_a_call_returns_before_its_work_is_done_and_marks_say_when_it_was(device):
    device.synchronize()
    began = time.perf_counter()
    start = device.mark()
    torch.cuda._sleep(SECOND)
    end = device.mark()
    host = time.perf_counter() - began
    device.synchronize()
    whole = time.perf_counter() - began
    assert host < 0.5 * whole
    assert 0.5 * whole < device.seconds(start, end) <= whole
    assert device.instants([start, end]) == [0.0, device.seconds(start, end)]


def test_a_queue_waits_for_a_mark_and_only_for_it(device):
    values, copied = torch.zeros(1000, device=device.torch_device), torch.zeros(1000, device=device.torch_device)
    lane, free = device.queue(), device.queue()
    device.synchronize()
    torch.cuda._sleep(SECOND // 4)
    values.fill_(7)
    ready = device.mark()
    with device.on(free):
        first = device.mark()
    with device.on(lane):
        device.wait(ready)
        copied.copy_(values)
        done = device.mark()
    device.wait(done)
    after = copied + 1
    device.synchronize()
    assert after.unique().tolist() == [8.0]
    assert device.seconds(first, ready) > 0.01  # the other queue did not wait


def test_what_is_put_there_arrives(device):
    tensor = torch.arange(1_000_000.0)
    arrived = device.put(tensor)
    assert arrived.device == device.torch_device
    assert torch.equal(arrived.cpu(), tensor)


def test_float32_means_float32(device):
    """TensorFloat-32 has 10 bits of fraction: the farthest of these would be off by some 3e-4 of the largest."""
    images, weights = (torch.randn(shape, device=device.torch_device) for shape in ((1, 512, 64, 64), (64, 512, 3, 3)))
    a, b = (torch.randn(512, 512, device=device.torch_device) for _ in range(2))
    for work, one, other in ((torch.nn.functional.conv2d, images, weights), (torch.matmul, a, b)):
        exact = work(one.double(), other.double())
        assert (work(one, other) - exact).abs().max() < 1e-4 * exact.abs().max()
    assert not torch.backends.cudnn.allow_tf32
    assert not torch.backends.cuda.matmul.allow_tf32


# Every schedule


def trained(plan: Plan, device: Device, dtype: torch.dtype, turns: int, *, strict: bool = False) -> Any:
    """(executor, what it trained); `strict`: any wait for the GPU while it runs is an error."""
    executor = prepare(plan, 0, Groups(device), dtype=dtype)
    assert isinstance(executor, Enqueuer)
    model = real.build("resnet8", dtype).to(device.torch_device)
    bind(model, plan, executor.buffers["parameter"])
    bind_statistics(model, executor.buffers["statistics"])
    samples = [[device.put(part) for part in real.sample("resnet8", 0, turn, dtype)] for turn in range(turns)]
    scaler = executor.buffers.get("scaler")

    def sample(turn: int) -> Any:
        if strict:
            torch.cuda.set_sync_debug_mode("error")
        return samples[turn]

    compute = ModelCompute(real.forward(model, 0), sample, scaler=scaler, queued=True)
    try:
        executor.run(turns, compute)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    compute.settle()
    compute.close()
    return executor, real.trained(model.cpu())


def planned(name: str, **how: Any) -> Plan:
    load = real.load("resnet8")
    scheme = schemes.Scheme(name=name, schedule=name.split()[0], options=real.options(name.split()[0], "resnet8"))
    scheme = scheme.model_copy(update={"wire": how.pop("wire", "")})
    return schemes.plan(scheme, load, real.COST, 1, lr=real.LR, momentum=real.MOMENTUM, **how)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", [*schedules.names(), "wfbp on two lanes"])
def test_every_schedule_trains_as_plain_torch(device, name, dtype):
    plan = planned(name)
    turns = 5 if dtype == torch.float64 else 1
    _, parameters = trained(small_model.two_lanes(plan) if "two" in name else plan, device, dtype, turns)
    wanted = real.reference("resnet8", 1, turns, dtype)
    assert max(np.abs(parameters[key] - wanted[key]).max() for key in wanted) < ENOUGH[dtype]


@pytest.mark.parametrize("how", [{}, {"wire": "float16"}, {"loss_scaling": True}], ids=str)
def test_no_turn_waits_for_the_gpu(device, how):
    executor, _ = trained(planned("mgwfbp", **how), device, torch.float32, 4, strict=True)
    if "scaler" in executor.buffers:
        assert executor.buffers["scaler"].tolist()[1:] == [4.0, 0.0]


def test_a_trace_is_in_the_plans_order(device):
    plan = planned("wfbp")
    executor, _ = trained(plan, device, torch.float32, 4)
    spans = {(span.operation, span.turn): span for span in executor.spans}
    slack = 5e-6  # of marks on two queues
    for op in plan.roles[0].flat:
        for turn in range(4):
            span = spans[op.name, turn]
            assert span.end >= span.start - slack
            for name, wanted in [(name, turn) for name in op.after] + [(name, turn - 1) for name in op.after_previous]:
                if wanted >= 0 and op.verb != "ready":
                    assert span.start >= spans[name, wanted].end - slack, (op.name, name)
    assert np.all(np.diff(executor.ends) > 0)


# Whole launches

SIZES = {name: parameter.numel() for name, parameter in list(models.build("lenet5", 0).named_parameters())[::-1]}


def plan_file(folder: Path, name: str, ranks: int = 1, **how: Any) -> str:
    layers = tuple(Layer(name=key, bytes=4 * size, backward_seconds=1e-3) for key, size in SIZES.items())
    load = Workload(name="lenet5", forward_seconds=1e-3, layers=layers)
    plan = schemes.plan(schemes.Scheme(name=name), load, Linear(1e-3, 1e-9), ranks, lr=0.02, momentum=0.9, **how)
    path = folder / f"{name}.json"
    path.write_text(plan.to_json())
    return str(path)


def gradsync(*arguments: str, status: int = 0, **environment: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in (*VARIABLES, "LOCAL_RANK")}
    command = [sys.executable, "-m", "gradsync", *arguments, "--device", "cuda"]
    ended = subprocess.run(
        command, env={**kept, **environment}, text=True, capture_output=True, timeout=HANGS_SECONDS, cwd=ROOT
    )
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


def until_it_trains(process: subprocess.Popen[str], folder: Path) -> None:
    """Waits for the first checkpoint (`--checkpoint-seconds 0`)."""

    def reached() -> bool:
        assert process.poll() is None, process.communicate()[1]
        return (folder / "checkpoint" / "latest.json").exists()

    until(reached)


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of the ranks of a launch, rank 0 first."""
    return [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.parametrize("precision", ["float32", "float16", "bfloat16"])
def test_one_rank_trains_under_every_schedule_and_stock_ddp(tmp_path, precision):
    if precision == "bfloat16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bfloat16")
    how = {"loss_scaling": True} if precision == "float16" else {}
    plans = [part for name in schedules.names() for part in ("--plan", plan_file(tmp_path, name, **how))]
    arguments = [
        *plans,
        "--peer",
        "ddp",
        "--peer",
        "ddp_powersgd",
        "--ranks",
        "1",
        "--batch",
        "8",
        "--iterations",
        "12",
    ]
    gradsync("train", *arguments, "--precision", precision, "--output", str(tmp_path / "run"))
    for name in (*schedules.names(), "ddp"):
        result = json.loads((tmp_path / "run" / name / "result.json").read_text())
        assert result["provenance"]["backend"] == "nccl"
        assert result["provenance"]["device"] == torch.cuda.get_device_name()
        assert result["provenance"]["driver"]
        assert result["summary"]["launch_peak_device_memory_bytes"] > 3e6 * 4
        assert result["conformance"]["difference_to_first"] < (1e-5 if precision == "float32" else 1e-2)
        if name != "ddp":
            assert result["conformance"]["oracle_difference"] < 1e-9
            trace = Trace.from_json((tmp_path / "run" / name / "trace.json").read_text())
            assert trace.iteration_seconds() > 0


def test_training_goes_on_from_a_checkpoint(tmp_path):
    """Killed once its first checkpoint is there."""
    arguments = ["--plan", plan_file(tmp_path, "wfbp"), "--peer", "ddp", "--ranks", "1", "--batch", "8"]
    arguments += ["--conformance", "0", "--checkpoint-seconds", "0", "--output", str(tmp_path / "run")]
    arguments += ["--iterations", "400", "--epochs", "10", "--block", "4"]
    command = [sys.executable, "-m", "gradsync", "train", "--device", "cuda", *arguments]
    process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, cwd=ROOT)
    until_it_trains(process, tmp_path / "run")
    os.kill(ranks_of(process)[0], signal.SIGKILL)
    assert "rank 0 was killed by SIGKILL" in process.communicate(timeout=HANGS_SECONDS)[1]
    assert "going on from the checkpoint" in gradsync("train", *arguments)


def test_layers_are_timed_in_the_order_of_autograd(tmp_path):
    path = tmp_path / "w.json"
    arguments = ["--model", "resnet18", "--size", "64", "--batch", "8", "--iterations", "5", "--output", str(path)]
    gradsync("measure", "layers", *arguments)
    workload = Workload.load(path)
    assert len(workload.layers) == 62
    assert workload.layers[0].name.startswith("fc.")
    assert workload.provenance["device"] == torch.cuda.get_device_name()
    assert workload.forward_seconds > 0
    assert sum(layer.backward_seconds for layer in workload.layers) > 0


def test_more_ranks_than_gpus_are_refused(tmp_path):
    ranks = torch.cuda.device_count() + 1
    arguments = ["--plan", plan_file(tmp_path, "wfbp", ranks), "--ranks", str(ranks), "--output", str(tmp_path / "run")]
    message = gradsync("train", *arguments, status=2)
    assert f"--ranks {ranks}: one rank per GPU, and this machine shows {ranks - 1}" in message


def test_two_ranks_of_one_gpu_are_refused_by_name(tmp_path):
    """As a launcher that binds each rank to one GPU may get it wrong."""
    port = str(free_ports(1)[0])
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": "0"}
    variables["GLOO_SOCKET_IFNAME"] = "lo"
    command = [
        sys.executable,
        "-m",
        "gradsync",
        "measure",
        "layers",
        "--device",
        "cuda",
        "--output",
        str(tmp_path / "w"),
    ]
    ranks = [
        subprocess.Popen(command, env={**os.environ, **variables, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    messages = [rank.communicate(timeout=HANGS_SECONDS)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert "ranks 0, 1 share GPU" in messages[0]

"""Which device a rank gets, what is refused, and what works on a device that queues (see `queued_device.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import queued_device
import small_model
from gradsync.cli import main
from gradsync.configuration import schemes
from gradsync.configuration.peers import Peer
from gradsync.configuration.training import Training
from gradsync.costs import Linear
from gradsync.errors import InputError
from gradsync.files.results import Result
from gradsync.measure import interference, layers, queued_interference
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import cuda, devices, failures, train
from gradsync.runtime.launch import VARIABLES
from gradsync.slurm.machine import free_ports
from queued_device import QueuedProcessor
from tiny_workloads import workload
from waiting import HANGS_SECONDS

NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: what is refused without one is not")

# Which device


@pytest.mark.parametrize(
    ("visible", "local_rank", "index"), [(1, None, 0), (1, "3", 0), (4, "0", 0), (4, "3", 3), (2, "1", 1)]
)
def test_a_rank_takes_the_only_gpu_or_that_of_its_number_on_the_node(visible, local_rank, index):
    assert devices.local_index(visible, local_rank) == index


@pytest.mark.parametrize(
    ("visible", "local_rank", "wanted"),
    [
        (2, "2", "LOCAL_RANK 2 needs 3 GPUs on its node, 2 are visible: start fewer ranks per node"),
        (2, None, "2 GPUs are visible and LOCAL_RANK is not set"),
        (2, "two", "2 GPUs are visible and LOCAL_RANK is two"),
    ],
)
def test_more_ranks_than_gpus_are_refused(visible, local_rank, wanted):
    with pytest.raises(InputError, match=wanted):
        devices.local_index(visible, local_rank)


def test_a_processor_is_nothing_to_wait_for(monkeypatch):
    moments = iter([3.0, 5.5])
    monkeypatch.setattr(devices, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    device = devices.pick("cpu")
    assert (device.kind, device.backend, device.queued, device.index) == ("cpu", "gloo", False, None)
    start = device.mark()
    with device.on(device.queue()):
        device.wait(start)
    assert device.seconds(start, device.mark()) == 2.5
    tensor = torch.ones(3)
    assert device.put(tensor) is tensor
    with pytest.raises(InputError, match="device 'tpu' does not exist; there are: cpu, cuda"):
        devices.pick("tpu")


# Refusals without a GPU


def refused(capsys: pytest.CaptureFixture[str]) -> str:
    output = capsys.readouterr()
    assert output.out == ""
    assert len(output.err.splitlines()) == 1
    assert "--device c" in output.err
    return output.err


@NO_GPU
@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "--schedule", "wfbp"],
        ["measure", "layers"],
        ["measure", "allreduce", "--ranks", "2"],
        ["measure", "interference", "--ranks", "2", "--workload", "none.json"],
    ],
    ids=" ".join,
)
def test_a_gpu_that_is_not_there_is_refused_before_anything_starts(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("gradsync.runtime.launch.launch", lambda *_, **__: pytest.fail("started something"))
    assert main([*arguments, "--device", "cuda", "--output", str(tmp_path / "out")]) == 2
    message = refused(capsys)
    assert "use --device cpu" in message or "or --device cpu" in message
    assert not (tmp_path / "out").exists()


@NO_GPU
@pytest.mark.parametrize(
    "arguments", [["measure", "layers"], ["measure", "allreduce", "--ranks", "2"], ["train", "--schedule", "wfbp"]]
)
def test_the_gpus_of_other_machines_are_not_judged_here(arguments, tmp_path, monkeypatch, capsys):
    """A command that starts ranks elsewhere is run; this one starts none, and says so by its status."""
    monkeypatch.setenv("GRADSYNC_LAUNCH", "false")
    assert main([*arguments, "--device", "cuda", "--output", str(tmp_path / "out" / "file")]) == 1
    assert "false ended with status 1" in capsys.readouterr().err


@NO_GPU
def test_ranks_of_another_launcher_say_it_too(tmp_path):
    """Both ranks end, and the first one says for which rank."""
    kept = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    port = str(free_ports(1)[0])
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    command = [
        sys.executable,
        "-m",
        "gradsync",
        "measure",
        "layers",
        "--device",
        "cuda",
        "--output",
        str(tmp_path / "o"),
    ]
    ranks = [
        subprocess.Popen(command, env={**kept, **variables, "RANK": str(rank)}, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    messages = [rank.communicate(timeout=HANGS_SECONDS)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert "rank 0: --device cuda" in messages[0]
    assert "Traceback" not in messages[0] + messages[1]


# Failures


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore"),
            "rank 3: the GPU's memory is full",
        ),
        (
            dist.DistBackendError("NCCL error in: x.cpp:1, remote error\nmore"),
            "rank 3: another rank is gone: NCCL error",
        ),
        (RuntimeError("[gloo/transport/tcp/pair.cc:1] Connection closed"), "rank 3: another rank is gone: .gloo"),
        (
            RuntimeError("[gloo/unbound_buffer.cc:81] Timed out waiting 1000ms for recv operation to complete"),
            "rank 3: another rank is there and does nothing, or is slower than the limit: .gloo",
        ),
        (torch.AcceleratorError("CUDA error: an illegal memory access\nmore"), "rank 3: the GPU failed: CUDA error"),
    ],
)
def test_what_torch_says_becomes_one_line_with_the_rank(error, wanted):
    import re

    explained = failures.explain(error, 3)
    assert explained is not None
    assert re.match(wanted, str(explained))
    assert "more" not in str(explained).splitlines()[0].split(": ")[-1]
    assert len(str(explained).splitlines()) == 1


def test_what_is_not_known_stays_what_it_is():
    assert failures.explain(RuntimeError("shapes do not match"), 0) is None
    assert failures.explain(ValueError("nccl"), 0) is None


def test_a_rank_that_leaves_at_once_says_everything_first():
    """The process ends with its status, and closes nothing: functions registered earlier do not run."""
    program = (
        "import atexit; atexit.register(print, 'closed'); from gradsync.runtime.failures import leave_at_once; "
        "leave_at_once(2)(); print('said')"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=HANGS_SECONDS)
    assert (ended.returncode, ended.stdout) == (2, "said\n")


# Measuring


def test_messages_within_a_window():
    sent = [(0.0, 1.0), (1.5, 2.0), (3.5, 5.0), (5.0, 6.0)]
    assert queued_interference.within(sent, 4.0) == (4.0, 0.75, 2.0)  # half a second of the third
    assert queued_interference.within([(0.0, 9.0)], 4.0) == (4.0, 9.0, 4.0)


@pytest.mark.parametrize("factor", [1.0, 1.25, 3.0])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_the_factor_does_not_depend_on_how_much_of_the_time_messages_take(factor, share):
    """Interference: computation of 2 s alone slows by `factor` in the `share` of its time in which messages travel."""
    window = 2.0 / (share / factor + 1 - share)
    factors = queued_interference.Queues(QueuedProcessor()).factors((window, 0.3, share * window), (2.0, 0.2))
    assert factors == (pytest.approx(factor), pytest.approx(1.5))


@pytest.mark.usefixtures("alone")
def test_beside_one_another_both_are_timed_on_their_queues(monkeypatch):
    """A processor does one after the other: computation stands still while a message is on its way."""
    clock = SimpleNamespace(now=0.0, perf_counter=lambda: clock.now)
    monkeypatch.setattr(queued_device, "time", clock)

    def iterate():
        clock.now += 4.0

    def send():
        clock.now += 2.0

    side = queued_interference.Queues(QueuedProcessor())
    alone = side.computing(iterate, 3), side.sending(send, 3)
    assert alone == (4.0, 2.0)
    together = side.together(iterate, send, alone[1], alone[0], 40.0)
    assert together == (8.0, 2.0, 4.0)  # two messages per iteration, which take half of its time
    assert side.factors(together, alone) == (queued_interference.LARGEST_FACTOR, 1.0)
    assert side.in_turn(iterate, send, 3) == 6.0


@pytest.mark.usefixtures("alone")
def test_layers_and_interference_are_measured_on_a_device_that_queues(monkeypatch):
    monkeypatch.setattr(interference, "BUDGET_SECONDS", 0.0)
    monkeypatch.setattr(interference, "SEGMENT_SECONDS", 0.002)
    device = QueuedProcessor()
    measured = layers.measure("lenet5", 2, 2, device=device)
    plain = layers.measure("lenet5", 2, 2)
    assert [layer.name for layer in measured.layers] == [layer.name for layer in plain.layers]
    assert measured.forward_seconds > 0
    factors = interference.measure(workload([40, 4000], [1.0, 1.0]), "lenet5", 2, device=device)
    assert [point.bytes for point in factors.points] == [40, 4040]
    assert all(point.communication >= 1 for point in factors.points)


# Training

SIZES = {"dense2.bias": 10, "dense2.weight": 10240, "dense1.bias": 1024, "dense1.weight": 3211264}
SIZES |= {"conv2.bias": 64, "conv2.weight": 51200, "conv1.bias": 32, "conv1.weight": 800}


def runs(folder: Path, precision: str) -> dict[str, Result]:
    layers = tuple(Layer(name=key, bytes=4 * size, backward_seconds=1e-3) for key, size in SIZES.items())
    load = Workload(name="lenet5", forward_seconds=1e-3, layers=layers)
    scaling = precision == "float16"
    plans = [
        schemes.plan(
            schemes.Scheme(name=name), load, Linear(1e-3, 1e-9), 1, lr=0.02, momentum=0.9, loss_scaling=scaling
        )
        for name in ("wfbp", "mgwfbp")
    ]
    iterations = 4 if precision == "float32" else 2  # on processors float16 takes long
    counts = {"batch": 2, "epochs": 1, "iterations": iterations, "block": 2, "conformance": 1}
    options = Training(model="lenet5", data="digits", **counts, precision=precision)
    train.train(plans, [Peer(name="ddp"), Peer(name="best", bucket_mib="best")], options, folder, 0, 1)
    names = ("wfbp", "mgwfbp", "ddp", "best", "no_communication", "one_rank")
    return {name: Result.load(folder / name / "result.json") for name in names}


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("precision", ["float32", pytest.param("float16", marks=pytest.mark.deep)])
def test_training_on_a_device_that_queues_ends_alike(tmp_path, monkeypatch, precision):
    plain = runs(tmp_path / "plain", precision)
    monkeypatch.setattr(devices, "pick", lambda kind: QueuedProcessor())
    queued = runs(tmp_path / "queued", precision)
    for name, result in plain.items():
        assert queued[name].conformance == result.conformance, name
        assert queued[name].summary["final_loss"] == result.summary["final_loss"]
        assert queued[name].summary["iteration_seconds"] > 0
        assert queued[name].summary.keys() == result.summary.keys()


@pytest.mark.usefixtures("alone")
def test_a_loss_that_is_not_finite_is_named_with_its_turn_after_the_run(monkeypatch):
    from gradsync.errors import RunError
    from gradsync.runtime.compute import ModelCompute, bind
    from gradsync.runtime.enqueue import prepare
    from gradsync.runtime.group import Groups

    executor = prepare(small_model.plan("wfbp", 1), 0, Groups(QueuedProcessor()))
    model = small_model.build()
    bind(model, executor.plan, executor.buffers["parameter"])

    def sample(turn: int) -> tuple[torch.Tensor, torch.Tensor]:
        images, labels = small_model.sample(0, turn)
        return images * float("nan") if turn == 2 else images, labels

    compute = ModelCompute(small_model.forward(model, 0), sample, name="wfbp", queued=True)
    executor.run(4, compute)
    assert compute.losses == []
    with pytest.raises(RunError, match=r"'wfbp': the loss is nan at iteration 2"):
        compute.settle()
    assert len(compute.losses) == 3


@pytest.mark.parametrize(
    ("capability", "built_for", "runs"),
    [
        ((9, 0), ["sm_80", "sm_90"], True),
        ((8, 6), ["sm_80", "sm_90"], True),  # machine code of 8.0 runs on 8.6
        ((8, 0), ["sm_86"], False),
        ((7, 0), ["sm_75", "sm_80", "sm_120"], False),
        ((10, 0), ["sm_90a", "compute_90"], True),  # PTX is compiled there
        ((10, 0), ["sm_90"], False),
        ((7, 0), ["compute_75"], False),
    ],
)
def test_a_gpu_that_torch_has_no_kernels_for_is_refused(capability, built_for, runs):
    if runs:
        cuda.refuse_unbuilt(capability, built_for)
        return
    with pytest.raises(
        InputError, match=rf"compute capability {capability[0]}\.{capability[1]}, only sm_|only compute_"
    ):
        cuda.refuse_unbuilt(capability, built_for)

"""What takes two GPUs: messages of NCCL, their times, and an end when a rank dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from test_one_gpu import gradsync, plan_file, ranks_of, until_it_trains

import small_model
from gradsync import schedules
from gradsync.configuration import peers
from gradsync.costs.fitted import load_points
from gradsync.costs.interference import Interference
from gradsync.engine.oracle import evaluate
from gradsync.plan.workload import Workload
from gradsync.runtime.compute import oracle_gradient
from gradsync.slurm.machine import free_ports
from waiting import HANGS_SECONDS

FOUND = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = pytest.mark.skipif(FOUND < 2, reason=f"needs two GPUs, torch finds {FOUND} here")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def on_gpus(tmp_path_factory):
    from real_ranks import run_on_ranks

    return run_on_ranks("gpu_schedules", 2, tmp_path_factory.mktemp("gpus"), device="cuda")


COMPOSED = {"two lanes": small_model.two_lanes(small_model.plan("wfbp", 2)), "by level": small_model.by_level(2)}


@pytest.mark.parametrize("name", [*schedules.names(), *COMPOSED])
def test_every_schedule_equals_the_oracle(on_gpus, name):
    plan = COMPOSED.get(name) or small_model.plan(name, 2)
    model = small_model.build()
    gradient = oracle_gradient(lambda rank: small_model.forward(model, rank), plan, small_model.sample)
    ends = evaluate(plan, small_model.TURNS, gradient, {"parameter": small_model.first(plan)})
    for end, result in zip(ends, on_gpus, strict=True):
        np.testing.assert_allclose(result[name], end["parameter"], rtol=0, atol=1e-9)


def test_messages_are_timed(on_gpus):
    for result in on_gpus:
        small, large = (np.median(result["times"][size]) for size in (4, 4_000_000))
        assert 0 < small < large < 0.1
        for kind, times in result["kinds"].items():
            small, large = (np.median(times[size]) for size in (4, 4_000_000))
            assert 0 < small < large < 0.1, kind


def test_two_ranks_train_alike_under_every_schedule_and_stock_ddp(tmp_path):
    plans = [part for name in schedules.names() for part in ("--plan", plan_file(tmp_path, name, 2))]
    stock = [part for name in peers.load(ROOT / "config" / "peers.yaml") for part in ("--peer", name)]
    gradsync("train", *plans, *stock, "--batch", "8", "--iterations", "12", "--output", str(tmp_path / "run"))
    for name in schedules.names():  # that ranks end alike is checked by the run
        result = json.loads((tmp_path / "run" / name / "result.json").read_text())
        assert result["conformance"]["oracle_difference"] < 1e-9
        assert result["conformance"]["difference_to_first"] < 1e-5
        assert result["summary"]["speedup"] > 0


def test_all_reduce_and_interference_are_measured(tmp_path):
    load, points, slow = (tmp_path / name for name in ("w.json", "points.csv", "slow.json"))
    model = ["--model", "resnet18", "--size", "64", "--batch", "8", "--ranks", "2"]
    gradsync("measure", "layers", *model, "--output", str(load))
    gradsync("measure", "allreduce", "--ranks", "2", "--workload", str(load), "--output", str(points))
    gradsync("measure", "interference", *model, "--workload", str(load), "--output", str(slow))
    sizes, seconds = load_points(points, 2)
    assert sizes.max() == Workload.load(load).bytes
    assert (seconds > 0).all()
    assert '# backend: "nccl"' in points.read_text()
    measured = Interference.load(slow, 2)
    assert all(1 <= point.computation < 20 for point in measured.points)


def test_a_killed_rank_is_named_and_ends_the_launch(tmp_path):
    arguments = ["--plan", plan_file(tmp_path, "wfbp", 2), "--epochs", "1000", "--conformance", "0"]
    arguments += ["--checkpoint-seconds", "0"]
    command = [
        sys.executable,
        "-m",
        "gradsync",
        "train",
        "--device",
        "cuda",
        *arguments,
        "--output",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(command, text=True, stderr=subprocess.PIPE, cwd=ROOT)
    until_it_trains(process, tmp_path / "run")
    os.kill(ranks_of(process)[1], signal.SIGKILL)
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert process.returncode == 1
    assert "rank 1 was killed by SIGKILL" in messages


def test_a_rank_that_lost_another_ends_by_itself(tmp_path):
    """Nobody watches these, as between nodes."""
    port = str(free_ports(1)[0])
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    arguments = ["--plan", plan_file(tmp_path, "wfbp", 2), "--epochs", "1000", "--conformance", "0"]
    arguments += ["--checkpoint-seconds", "0"]
    command = [
        sys.executable,
        "-m",
        "gradsync",
        "train",
        "--device",
        "cuda",
        *arguments,
        "--output",
        str(tmp_path / "run"),
    ]
    ranks = [
        subprocess.Popen(
            command,
            env={**os.environ, **variables, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            text=True,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        until_it_trains(ranks[0], tmp_path / "run")
        ranks[1].kill()
        messages = ranks[0].communicate(timeout=HANGS_SECONDS)[1]
        assert ranks[0].returncode == 1
        assert "rank 0: another rank is gone" in messages
        assert "Traceback" not in messages
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()

"""Launches of `gradsync train` of which a rank is killed end, and go on to the same parameters."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest
from test_training import children, gone, phased_file, plan_file, result, start, trained

from waiting import HANGS_SECONDS

ITERATIONS, BLOCK = 6, 3


@pytest.mark.deep
@pytest.mark.parametrize(
    ("steps", "rate"),
    [
        ({}, {}),
        ({"optimizer": "adam", "accumulate": 2, "clip_norm": 0.5}, {"lr_schedule": "cosine"}),
        ({"clip_norm": 0.5}, {"lr_schedule": "linear"}),
    ],
    ids=["steps", "shards_of_micro_batches", "phases"],
)
def test_a_killed_run_names_the_rank_ends_the_others_and_goes_on_to_the_same_parameters(tmp_path, steps, rate):
    schedules = ("wfbp", "pipelined" if "optimizer" in steps else "mgwfbp")
    plans = [part for name in schedules for part in ("--plan", plan_file(tmp_path, name, **steps))]
    others = ("ddp", "fsdp2") if steps else ("ddp", "ddp_powersgd", "zero", "fsdp2")
    peers = [part for name in others for part in ("--peer", name)]
    options = [part for key, value in (steps | rate).items() for part in (f"--{key.replace('_', '-')}", str(value))]
    if steps.keys() == {"clip_norm"}:  # sparse messages, then dense ones
        plans, peers = ["--plan", phased_file(tmp_path, 0.5, **steps)], []
    arguments = [*plans, *peers, *options, "--iterations", str(ITERATIONS), "--block", str(BLOCK), "--seed", "3", "4"]
    arguments += ["--conformance", "1", "--checkpoint-seconds", "0"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    trained(whole, *arguments)

    process = start(killed, *arguments)
    latest = killed / "checkpoint" / "latest.json"
    number = random.randint(1, 2 * ITERATIONS // BLOCK - 2)
    print(f"killed after checkpoint {number}")  # shown if the test fails
    while not latest.exists() or json.loads(latest.read_text())["number"] < number:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)
    ranks = children(process)
    os.kill(ranks[1], signal.SIGKILL)
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert process.returncode == 1
    assert "rank 1 was killed by SIGKILL; the other ranks were ended" in messages
    assert all(gone(pid) for pid in ranks)
    assert not (killed / "schemes.json").exists()

    messages = trained(killed, *arguments)
    assert "going on from the checkpoint at iteration" in messages
    for name in json.loads((whole / "schemes.json").read_text()):
        first, second = result(whole, name), result(killed, name)
        assert first["conformance"] == second["conformance"], name
        assert first["summary"]["pairs"] == second["summary"]["pairs"]
        assert first["samples"].keys() == second["samples"].keys() >= {"iteration_seconds"}
        assert {len(values) for values in second["samples"].values()} == {second["summary"]["pairs"]}
        losses = [
            [line.split(",")[:5] for line in (folder / name / "metrics.csv").read_text().splitlines()]
            for folder in (whole, killed)
        ]
        if "no_comm" not in name and "one_rank" not in name:
            assert "parameters_sha256" in first["conformance"]
            assert losses[0] == losses[1], name
    assert not (killed / "checkpoint").exists()  # it is complete

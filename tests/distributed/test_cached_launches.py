"""Launches that share a data cache: what they count, and what a killed one leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from image_files import write_photographs
from left_in_memory import left_in_memory, stays_in_memory
from waiting import HANGS_SECONDS, until

ROOT = Path(__file__).parents[2]
MODEL = ["--data", "imagenet", "--model", "resnet18", "--size", "32", "--batch", "2", "--block", "3"]


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gradsync", "train", "--peer", "ddp", "--peers", str(ROOT / "config/peers.yaml")]
    data = ["--data-folder", str(folder), "--data-cache", "exact", "--data-cache-folder", str(folder / "copies")]
    return subprocess.Popen(
        [*command, *MODEL, *data, "--output", str(folder / "out"), *arguments], stderr=subprocess.PIPE, text=True
    )


@pytest.fixture
def folder(tmp_path):
    write_photographs(tmp_path)
    return tmp_path


def test_ranks_share_what_they_decode_and_the_result_tells(folder):
    before = left_in_memory()
    process = start(folder, "--epochs", "6")
    assert process.communicate(timeout=HANGS_SECONDS)[1].find("warning: the data cache") < 0
    assert process.returncode == 0
    result = json.loads((folder / "out" / "ddp" / "result.json").read_text())
    counted = {key: value for key, value in result["summary"].items() if key.startswith("data_cache_")}
    # 15 for training, 6 for the test: each decoded once, whichever rank is first
    assert counted["data_cache_memory_misses"] == 21
    assert counted["data_cache_disk_misses"] == 21
    # 18 turns of 2 x 2 samples, perhaps those of a turn ahead; 6 test images after each epoch
    assert 72 + 36 - 21 <= counted["data_cache_memory_hits"] <= 76 + 36 - 21
    assert {counted[f"data_cache_memory_{kind}"] for kind in ("heals", "evictions", "refusals")} == {0}
    assert len(result["samples"]["io_seconds"]) == 6
    assert result["summary"]["io_seconds"] > 0
    assert result["summary"]["exposed_io_seconds"] >= 0
    assert not stays_in_memory(before)


def test_a_launch_whose_rank_is_killed_leaves_no_memory(folder):
    before = left_in_memory()
    process = start(folder, "--epochs", "100000")
    until((folder / "copies" / "total").exists)  # which rank 0 makes after the memory
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[0]), signal.SIGKILL)  # the owner of the memory
    assert process.communicate(timeout=HANGS_SECONDS)
    assert process.returncode == 1
    assert not stays_in_memory(before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "digits", "--data-cache", "exact"], "--data-cache: data 'digits' is not decoded from files"),
        (["--data", "imagenet", "--data-cache", "files"], "--data-cache files: give --data-cache-folder"),
    ],
)
def test_a_cache_that_makes_no_sense_is_refused(folder, arguments, message):
    command = [sys.executable, "-m", "gradsync", "train", "--peer", "ddp", "--model", "resnet18", "--size", "32"]
    command += ["--batch", "2", "--data-folder", str(folder), "--output", str(folder / "out"), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_SECONDS)
    assert ended.returncode == 2
    assert message in ended.stderr
    assert ended.stderr.count("\n") == 1

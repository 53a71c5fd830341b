"""Translations, trained on real ranks: dense and sparse plans beside stock DDP, scored by BLEU, and gone on with."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from gradsync.configuration import schemes
from gradsync.costs import Linear
from gradsync.plan.workload import Layer, Workload
from gradsync.runtime import models
from gradsync.runtime.launch import VARIABLES
from waiting import HANGS_SECONDS

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(find_spec("sacrebleu") is None, reason="no sacrebleu: set up the environment again"),
]
ROOT = Path(__file__).parents[2]
WORDS = ("the", "a", "dog", "sees", "cat", "house", "small")
ADAM = ("--optimizer", "adam", "--lr", "0.002", "--lr-schedule", "inverse_sqrt", "--warmup-iterations", "2")


def corpus(folder: Path, words: tuple[str, ...] = WORDS) -> Path:
    """40 sentences for training and 6 for the test; a translation has each word's letters in reverse."""
    folder.mkdir(exist_ok=True)
    for part, count in (("train", 40), ("test", 6)):
        lines = [[words[(i * k + k) % len(words)] for k in range(1, 4 + i % 3)] for i in range(count)]
        reverse = [[word[::-1] for word in line] for line in lines]
        for language, sentences in (("en", lines), ("de", reverse)):
            (folder / f"{part}.{language}").write_text("".join(" ".join(words) + "\n" for words in sentences))
    return folder


def plan_files(folder: Path) -> list[str]:
    named = models.build("transformer_small", 0).named_parameters()
    layers = [Layer(name=name, bytes=4 * each.numel(), backward_seconds=1e-3) for name, each in named]
    workload = Workload(name="transformer_small", forward_seconds=1e-3, layers=tuple(layers[::-1]))
    single = {"schedule": "single", "collective": "allgather_sparse", "compressor": "exact_topk", "density": 0.01}
    paths = []
    for scheme in (schemes.Scheme(name="mgwfbp"), schemes.Scheme(name="topk", **single)):
        plan = schemes.plan(scheme, workload, Linear(1e-3, 1e-9), 2, optimizer="adam", lr=0.002)
        paths.append(f"--plan={folder / scheme.name}.json")
        (folder / f"{scheme.name}.json").write_text(plan.to_json())
    return paths


def start(output: Path, data: Path, *arguments: str) -> subprocess.Popen[str]:
    command = ["train", "--model", "transformer_small", "--data", "translation", "--data-folder", str(data)]
    command += ["--batch", "5", "--block", "2", "--no-references", "--output", str(output), *ADAM, *arguments]
    environment = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    peers = ["--peers", str(ROOT / "config" / "peers.yaml"), "--peer", "ddp"]
    return subprocess.Popen(
        [sys.executable, "-m", "gradsync", *command, *peers],
        env=environment,
        text=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_plans_translate_as_ddp_does_and_are_scored(tmp_path):
    plans = plan_files(tmp_path)
    process = start(tmp_path / "run", corpus(tmp_path / "data"), *plans, "--epochs", "2", "--conformance", "2")
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert process.returncode == 0, messages
    results = {
        name: json.loads((tmp_path / "run" / name / "result.json").read_text()) for name in ("mgwfbp", "topk", "ddp")
    }
    for name in ("mgwfbp", "topk"):
        assert results[name]["conformance"]["oracle_difference"] < 1e-9
    assert results["ddp"]["conformance"]["difference_to_first"] < 1e-4  # of the dense plan, with Adam
    for name, result in results.items():
        assert 0 <= result["summary"]["bleu_least"] <= result["summary"]["bleu"] <= 100
        assert "tok:13a" in result["provenance"]["bleu"]
        assert not any("generated" in note for note in result["notes"])
        rows = [line.split(",") for line in (tmp_path / "run" / name / "metrics.csv").read_text().splitlines()]
        assert rows[0][-2:] == ["accuracy", "bleu"]
        assert [row[1] for row in rows[1:] if row[-1]] == ["3", "7"]  # the last turn of each epoch
        assert float(rows[-1][4]) < float(rows[1][4])  # it learns


def test_a_run_that_goes_on_with_other_sentences_is_refused(tmp_path):
    data, run = corpus(tmp_path / "data"), tmp_path / "run"
    more = ("--epochs", "2000", "--checkpoint-seconds", "0")
    process = start(run, data, *more)
    deadline = time.monotonic() + HANGS_SECONDS
    while not (run / "checkpoint" / "latest.json").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=HANGS_SECONDS)
    corpus(data, (*WORDS, "moreover"))
    process = start(run, data, *more)
    messages = process.communicate(timeout=HANGS_SECONDS)[1]
    assert process.returncode == 2
    assert f"checkpoint {run / 'checkpoint'} is of other sentences: their vocabulary has" in messages
    assert "Traceback" not in messages

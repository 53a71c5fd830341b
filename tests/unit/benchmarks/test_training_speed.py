"""The benchmark of training: its verdicts on runs that were made up."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradsync.benchmarks import training_speed
from gradsync.errors import RunError
from gradsync.files.results import Result

TURNS = 4  # of a block; the first is not timed
ALWAYS = {"wfbp": 3.0, "naive": 4.0, "single": 3.0, "dear": 2.0, "pipelined": 1.0}
ALWAYS |= {"ddp": 1.25, "ddp_best": 1.0, "no_communication": 0.5}
MET = dict.fromkeys(training_speed.WITH_TARGET, 1.0)


class Runs:
    """Writes what a launch would leave behind."""

    def __init__(self, ratios: dict[str, Any], blocks: int = 24, memory: float = 1.0, seconds: float = 0.1):
        self.ratios, self.blocks, self.memory, self.seconds = {**ALWAYS, **ratios}, blocks, memory, seconds
        self.commands: list[tuple[str, ...]] = []

    def run(self, what: str, output: str, path: str, *options: str) -> None:
        assert (what, output) == ("train", "--output")
        folder = Path(path)
        self.commands.append(options)
        for name in [*self.named(options), *(["no_communication"] if "--no-references" not in options else [])]:
            self.write(folder, name)

    @staticmethod
    def named(options: tuple[str, ...]) -> list[str]:
        return [options[i + 1] for i, option in enumerate(options) if option in ("--schedule", "--peer")]

    def write(self, folder: Path, name: str) -> None:
        bytes_ = 1e8 * (self.memory if name == "mgwfbp" else 1.0)
        Result(
            rung="measured",
            scheme=name,
            model="made up",
            ranks=2,
            summary={"launch_peak_memory_bytes": bytes_},
            conformance={"oracle_difference": 1e-16, "parameters_sha256": "abc"},
        ).save(folder / name)
        ratio = np.broadcast_to(self.ratios[name], self.blocks)
        machine = 1 + np.random.default_rng(0).exponential(size=self.blocks)  # slow moments fall on all alike
        lines = ["seed,step,epoch,block,loss,iteration_seconds,accuracy"]
        for block, seconds in enumerate((self.seconds * ratio * machine).tolist()):
            lines.append(f"0,{TURNS * block},0,{block},1.0,,")
            # a slow turn is not what counts
            lines += [f"0,0,0,{block},1.0,{turn}," for turn in (seconds, 9 * seconds, seconds)]
        (folder / name / "metrics.csv").write_text("\n".join(lines) + "\n")


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """measured(ratios, ...): the benchmark's answer, and its rows by task without the model."""

    def measure(*arguments: Any, **named: Any) -> tuple[dict[str, Any], dict[str, dict[str, Any]], Runs]:
        runs = Runs(*arguments, **named)
        monkeypatch.setattr(training_speed.command, "run", runs.run)
        answer = training_speed.measure(tmp_path, "peers.yaml")
        rows = {row["task"].split(" ranks, ")[1]: row for row in answer["rows"] if row["task"].startswith("lenet5")}
        assert json.loads(json.dumps(answer)) == answer
        return answer, rows, runs

    return measure


def test_targets_that_are_met(measured):
    answer, rows, _ = measured({"mgwfbp": 0.75, "optimal": 1.049, "fixed_buckets": 1.0})
    assert answer["met"]
    assert len(answer["rows"]) == 2 * len(rows) == 2 * 12
    best = rows["optimal / ddp_best"]  # of ddp and ddp_best the better one
    assert (best["ratio"], best["ratio_low"], best["ratio_high"]) == pytest.approx((1.049,) * 3)
    assert (best["target_ratio"], best["pairs"], best["met"]) == (1.05, 24, True)
    assert best["oracle_difference"] == 1e-16
    assert rows["ddp_best / ddp_best"]["ratio"] == 1
    assert rows["ddp / ddp_best"]["ratio"] == pytest.approx(1.25)
    assert rows["naive / ddp_best"]["ratio"] == pytest.approx(4)
    assert rows["naive / ddp_best"]["target_ratio"] is None  # reported, not bound
    assert rows["no_communication / ddp_best"]["ratio"] == pytest.approx(0.5)


def test_the_better_ddp_is_what_counts(measured):
    answer, rows, _ = measured({**MET, "ddp": 0.9})
    assert rows["mgwfbp / ddp"]["ratio"] == pytest.approx(1 / 0.9)
    assert not answer["met"]


UPPER = [1.0] * 14 + [1.2] * 10  # a median of 1.0 whose interval reaches 1.2


@pytest.mark.parametrize("name", training_speed.WITH_TARGET)
@pytest.mark.parametrize(
    ("ratio", "blocks", "met"),
    [(1.06, 24, False), (UPPER, 24, False), (1.0, 19, False), (1.0, 20, True), ([1.0] * 20 + [9.0] * 4, 24, True)],
    ids=["median", "upper bound", "too few pairs", "just enough", "a few slow ones"],
)
def test_one_that_misses_is_told(measured, name, ratio, blocks, met):
    answer, rows, _ = measured({**MET, name: ratio}, blocks)
    assert answer["met"] is met
    all_of_them = [*training_speed.WITH_TARGET, training_speed.NOT_SLOWER]
    expected = [name] if not met and blocks >= 20 else all_of_them if not met else []
    assert sorted(task for task, row in rows.items() if not row["met"]) == sorted(f"{n} / ddp_best" for n in expected)


@pytest.mark.parametrize(
    ("ratio", "met"),
    [(0.9, True), (1.01, False), ([0.99] * 8 + [1.02] * 16, True), ([0.99] * 5 + [1.02] * 19, False)],
    ids=["faster", "slower", "interval holds 1", "interval above 1"],
)
def test_pipelined_has_to_be_no_slower(measured, ratio, met):
    answer, rows, _ = measured({**MET, "pipelined": ratio})
    row = rows["pipelined / ddp_best"]
    assert (row["target_ratio"], row["met"], answer["met"]) == (1.0, met, met)


@pytest.mark.parametrize(("memory", "met"), [(1.099, True), (1.101, False)])
def test_memory_is_that_of_a_plan_alone_over_ddp_alone(measured, memory, met):
    answer, rows, runs = measured(MET, memory=memory)
    row = rows["peak memory of a rank, mgwfbp / ddp"]
    assert (row["ratio"], row["bytes"]) == pytest.approx((memory, 1e8 * memory))
    assert row["met"] is answer["met"] is met
    alone = [command for command in runs.commands if "--no-references" in command]
    assert [Runs.named(command) for command in alone] == [["ddp"], ["mgwfbp"]] * 2
    # on the same batch and size as the speed
    for i, model in enumerate(training_speed.MODELS):
        (speed,) = [c for c in runs.commands if c[c.index("--model") + 1] == model and "--no-references" not in c]
        for command in alone[2 * i : 2 * i + 2]:
            for option in {"--model", "--batch", "--size", "--ranks"} & set(speed):
                assert command[command.index(option) + 1] == speed[speed.index(option) + 1]


def test_a_launch_that_fails_ends_the_benchmark(tmp_path, monkeypatch):
    monkeypatch.setattr(training_speed, "MODELS", {"nosuch": ()})
    with pytest.raises(RunError, match=r"this failed: .* train .*--model nosuch"):
        training_speed.measure(tmp_path, str(tmp_path / "peers.yaml"))
